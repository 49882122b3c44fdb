"""What a node holds: its book of leases, their keeper, the slots of sites, and the one writer of the frontier."""
