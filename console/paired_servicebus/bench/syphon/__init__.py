"""`paired bench syphon`: the syphon beside loops on the SDK and a plain copy; its memory growth."""
