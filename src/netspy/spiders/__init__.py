"""spiders"""
