"""Work off a list of tasks that anybody may push to, with as many nodes as you like.

python product_tasks.py push 1 2 3    # from any process, at any time
python product_tasks.py               # a node: works until the tasks are used up
python product_tasks.py stay          # a node that waits for more

`netspy tasks push ids.csv --spider product_tasks.py` pushes a whole file, `netspy tasks status product_tasks.py` counts.
"""

import sys

import netspy as mw


class ProductSpider(mw.TaskSpider):
    __custom_setting__ = dict(
        REDIS_URL="redis://localhost:6379/0",
        ITEM_PIPELINES=["netspy.pipelines.sqlite.SqlitePipeline"],
    )

    def task_requests(self, task):
        yield mw.Request(
            f"https://example.com/product/{task['id']}",
            callback=self.parse,
            cb_kwargs={"task": task},
        )

    def parse(self, request, response, task):
        yield Product(id=task["id"], price=response.css(".price::text").get())
        # A product may name others: they become tasks, before this page counts as done.
        for other in response.css("a.similar::attr(data-id)").getall():
            if not task.get("similar"):
                self.add_tasks({"id": int(other), "similar": True})

    def task_failed(self, task):
        self.logger.warning("product {} could not be fetched", task["id"])


class Product(mw.Item):
    __unique_key__ = "id"


if __name__ == "__main__":
    if sys.argv[1:2] == ["push"]:
        pushed = ProductSpider.push_tasks(*[{"id": int(word)} for word in sys.argv[2:]])
        print(f"pushed {pushed}")
    else:
        ProductSpider(keep_alive=sys.argv[1:] == ["stay"]).start()
