"""redisio"""
