"""The frontier inside one process: AirSpider's, and the fast side of the contract suite."""
