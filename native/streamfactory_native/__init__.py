"""The compiled core of streamfactory, which it loads where it is installed."""
