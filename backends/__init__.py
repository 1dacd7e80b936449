"""One module or package a stream type, each a plug-in. They never import each other."""
