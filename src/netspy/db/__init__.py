"""Small database clients for spiders' own queries: MysqlDB, PostgresDB, get_redis."""
