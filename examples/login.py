"""Pages behind a log-in: post the form once, and the cookie it sets goes with every later request.

ACCOUNT=ann PASSWORD=secret python login.py

Each process keeps cookies of its own, so this is an AirSpider.
"""

import os

import netspy as mw


class OrdersSpider(mw.AirSpider):
    __custom_setting__ = dict(ITEM_PIPELINES=["netspy.pipelines.csv.CsvPipeline"])

    def start_requests(self):
        # First the form's page: it holds a token that must be sent along.
        yield mw.Request("https://example.com/login", callback=self.log_in)

    def log_in(self, request, response):
        yield mw.Request(
            response.urljoin(response.css("form::attr(action)").get()),
            method="POST",
            data={
                "token": response.css("input[name=token]::attr(value)").get(),
                "account": os.environ.get("ACCOUNT", "ann"),
                "password": os.environ.get("PASSWORD", "secret"),
            },
            callback=self.logged_in,
        )

    def logged_in(self, request, response):
        if not response.css("a.logout"):
            self.stop("the site did not let us in")
            return
        yield mw.Request("https://example.com/orders", callback=self.parse_orders)

    def validate(self, request, response):
        # Called for every page before its callback. Raising ValidationError has the page fetched again.
        if request.callback_name == "parse_orders" and response.css("form[action='/login']"):
            raise mw.ValidationError("logged out")

    def parse_orders(self, request, response):
        for row in response.css("table.orders tr"):
            yield {"order": row.css("td.number::text").get(), "total": row.css("td.total::text").get()}
        yield from response.follow_all(css="a.next", callback=self.parse_orders)


if __name__ == "__main__":
    OrdersSpider().start()
