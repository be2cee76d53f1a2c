"""udsprobe: is the transport really the bottleneck?"""

__version__ = "0.1.0"
