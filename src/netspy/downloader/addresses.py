"""Which addresses lie on the public internet: decisions only.

The lists follow the IANA special-purpose address registries (RFC 6890 and what updated it) and RFC 4291. They are
written out because `ipaddress.is_global` answers differently from one Python version to the next.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_V4: tuple[tuple[IPv4Network, str], ...] = tuple(
    (IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        (
            "100.64.0.0/10",
            "private",
        ),  # carrier-grade NAT (RFC 6598); also Alibaba's metadata, 100.100.100.200
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "cloud metadata"),  # Azure's; the only one with a public address
        ("169.254.0.0/16", "link-local"),  # most clouds' metadata: 169.254.169.254
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),  # also Oracle's metadata, 192.0.0.192
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),  # 6to4 relays, given up by RFC 7526
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_V6: tuple[tuple[IPv6Network, str], ...] = tuple(
    (IPv6Network(network), kind)
    for network, kind in (
        ("::1/128", "loopback"),
        ("::/128", "unspecified"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),  # site-local, given up by RFC 3879, still routed here and there
        ("fc00::/7", "private"),  # unique local; also Amazon's metadata, fd00:ec2::254
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved"),  # IETF protocols, Teredo tunnels among them
        ("2001:db8::/32", "reserved"),
        ("3fff::/20", "reserved"),
    )
)
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")


def objection(address: IPv4Address | IPv6Address) -> str | None:
    """What kind of address it is when it isn't a public one, e.g. "loopback"; None for a public address.

    Addresses that carry an IPv4 address (mapped, 6to4, NAT64) are judged by that one.
    """
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in _V4 if address in network), None)
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address in _NAT64:
        inner = IPv4Address(address.packed[12:])
    if inner is not None:
        return objection(inner)
    for network, kind in _V6:
        if address in network:
            return kind
    return None if address in _GLOBAL_UNICAST else "reserved"


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a URL's host (WHATWG form, IPv6 in brackets) is; None for a name."""
    if not host or (host[0] != "[" and not host[-1].isdigit()):
        return None
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None
