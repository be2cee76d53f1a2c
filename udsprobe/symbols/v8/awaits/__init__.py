"""Async functions of JavaScript that wait: no thread sleeps for one of them."""
