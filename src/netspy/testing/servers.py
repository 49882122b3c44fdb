"""Private Redis servers for tests, with TLS or ACL if wanted: real processes on free ports, ended and removed with their
block, or with this process however it ends.
"""

from netspy.testing.certificates import Certificates
from netspy.testing.private_server import free_port
from netspy.testing.proxy import FaultProxy
from netspy.testing.redis_server import (
    RedisServer,
    find_embedded_server,
    find_redis_server,
    find_valkey_server,
)

__all__ = [
    "Certificates",
    "FaultProxy",
    "RedisServer",
    "find_embedded_server",
    "find_redis_server",
    "find_valkey_server",
    "free_port",
]
