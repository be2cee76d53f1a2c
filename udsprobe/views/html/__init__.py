"""Pages: self-contained HTML that needs no network, no script and no other file.

`page.render` fills a template in; `shell.html.jinja` is what all pages share.
Needs Jinja2 and, for the plots, matplotlib: the extra `html`.
"""

import logging

# Who has no home to write to has its cache in a temporary directory, and need not hear of it.
logging.getLogger("matplotlib").setLevel(logging.ERROR)
