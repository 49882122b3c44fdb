"""Doorway: `from netspy.core.spiders import AirSpider`."""

from netspy.spiders.air import AirSpider
from netspy.spiders.batch import BatchSpider
from netspy.spiders.distributed import Spider
from netspy.spiders.tasks import TaskSpider

__all__ = ["AirSpider", "BatchSpider", "Spider", "TaskSpider"]
