"""The page around the report: one HTML file with its style and script inside, nothing is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

STYLE = """
:root{color-scheme:light dark;
 --paper:#fbfaf7;--card:#ffffff;--ink:#1d1c1a;--soft:#5f5c56;--faint:#8b877f;--rule:#e4e1da;--grid:#ebe8e1;
 --screen:#f4f2ec;--base:#8d8a83;--sft:#3568b8;--rl:#c8502a;--good:#2f7d57;--bad:#b3382c;--violet:#7656a8;--teal:#20807f;
 --serif:"Iowan Old Style","Palatino Linotype",Palatino,"Book Antiqua",Georgia,serif;
 --sans:Inter,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Liberation Sans",Arial,system-ui,sans-serif;
 --mono:ui-monospace,"SF Mono","JetBrains Mono",Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace}
@media(prefers-color-scheme:dark){:root{
 --paper:#141517;--card:#1b1c1f;--ink:#e9e6e0;--soft:#aaa69e;--faint:#7d7a73;--rule:#2d2f33;--grid:#292b2f;
 --screen:#101113;--base:#94918a;--sft:#6c9ceb;--rl:#ee7f55;--good:#5fbb8c;--bad:#ec7569;--violet:#a98be0;--teal:#4fb9b7}}
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:4.5rem}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.6 var(--sans);
 -webkit-font-smoothing:antialiased}
main,header.top,footer{max-width:1120px;margin:0 auto;padding:0 32px}
h1,h2{font-family:var(--serif);font-weight:500;letter-spacing:-.012em;line-height:1.15;margin:0;
 text-wrap:balance}
h1{font-size:clamp(34px,5vw,52px)} h2{font-size:30px} h3{font-size:15px;font-weight:600;margin:0 0 2px}
p{margin:0} a{color:inherit}
header.top{padding-top:72px;padding-bottom:44px}
.eyebrow{font-size:13px;letter-spacing:.09em;text-transform:uppercase;color:var(--faint);margin-bottom:18px}
.lead{font:400 21px/1.55 var(--serif);color:var(--soft);max-width:44em;margin-top:22px;text-wrap:pretty}
.lead b{font-weight:600;color:var(--ink)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(180px,1fr));gap:28px 36px;margin-top:48px;
 padding-top:28px;border-top:1px solid var(--rule)}
.figure b{display:block;font:500 38px/1.1 var(--serif);font-variant-numeric:lining-nums tabular-nums;
 letter-spacing:-.02em}
.figure span{display:block;font-size:14px;font-weight:600;margin-top:8px}
.figure small{display:block;font-size:13px;line-height:1.45;color:var(--soft);margin-top:2px}
nav{position:sticky;top:0;z-index:2;background:color-mix(in srgb,var(--paper) 90%,transparent);
 backdrop-filter:blur(10px);
 border-bottom:1px solid var(--rule)}
nav div{max-width:1120px;margin:0 auto;padding:0 32px;display:flex;gap:26px;overflow-x:auto;font-size:14px}
nav a{padding:13px 0;color:var(--soft);text-decoration:none;white-space:nowrap} nav a:hover{color:var(--ink)}
section{padding:64px 0 8px} .say{color:var(--soft);max-width:46em;margin:12px 0 30px;text-wrap:pretty}
.grid{display:grid;gap:34px 40px;grid-template-columns:repeat(auto-fill,minmax(300px,1fr))}
.two{display:grid;gap:34px 56px;grid-template-columns:repeat(auto-fit,minmax(400px,1fr));margin-bottom:40px}
figure{margin:0;min-width:0} figcaption{margin-bottom:10px} figcaption p{font-size:13px;line-height:1.45;
 color:var(--soft)}
.tag{font-size:11px;font-weight:600;letter-spacing:.03em;padding:1px 7px;border:1px solid var(--rule);
 border-radius:99px;
 color:var(--soft);margin-left:8px;vertical-align:1px;white-space:nowrap}
h3.over{margin:8px 0 24px} .under{margin-top:40px}
svg{display:block;width:100%;height:auto;overflow:visible;font-family:var(--sans);
 font-variant-numeric:tabular-nums}
svg .t{font-size:11px;fill:var(--faint)} svg .n{font-size:12.5px;fill:var(--soft)}
svg .v{font-size:12.5px;font-weight:600;fill:var(--ink)}
svg .grid{stroke:var(--grid)} svg .axis{stroke:var(--faint);stroke-opacity:.55} svg .track{fill:var(--grid)}
svg .line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
svg .raw{fill:none;stroke-width:1;opacity:.3} svg .band{opacity:.13} svg .bar{opacity:.88}
svg g:hover .bar{opacity:1} svg .whisker{stroke:var(--ink);stroke-width:1.3;fill:none;opacity:.75}
svg .hit{fill:transparent} svg .hit:hover{fill:var(--ink);fill-opacity:.05}
.key{display:flex;flex-wrap:wrap;gap:8px 26px;font-size:13.5px;color:var(--soft);margin:-10px 0 28px}
.key i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:8px}
.more{margin-top:36px} summary{cursor:pointer;color:var(--soft);font-size:14px}
  summary:hover{color:var(--ink)}
.more>summary{margin-bottom:24px}
.browser{display:grid;grid-template-columns:272px minmax(0,1fr);gap:40px;align-items:start}
.list{position:sticky;top:66px;max-height:calc(100vh - 90px);overflow-y:auto;padding:2px 8px 2px 2px;
 scrollbar-width:thin}
.list h3{font-size:12px;letter-spacing:.07em;text-transform:uppercase;color:var(--faint);
 margin:22px 0 6px 12px}
.list h3:first-child{margin-top:0}
.list button{all:unset;box-sizing:border-box;display:grid;grid-template-columns:1fr auto;gap:0 12px;
 width:100%;
 padding:8px 12px;border-radius:8px;cursor:pointer;font-size:14px;line-height:1.35}
.list button:hover{background:var(--grid)} .list button:focus-visible{outline:2px solid var(--sft)}
.list button[aria-selected=true]{background:var(--card);
 box-shadow:0 0 0 1px var(--rule),0 1px 3px rgb(0 0 0/.06)}
.list .name{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.list .score{font-weight:600;font-variant-numeric:tabular-nums}
.list .sub{grid-column:1/-1;font-size:12.5px;color:var(--faint);overflow:hidden;text-overflow:ellipsis;
 white-space:nowrap}
.dot{display:inline-block;width:8px;height:8px;border-radius:50%;margin-right:7px}
article{background:var(--card);border:1px solid var(--rule);border-radius:14px;padding:32px 36px 36px;
 min-width:0}
article[hidden]{display:none}
.title{display:flex;justify-content:space-between;gap:24px;align-items:flex-start}
.title h3{font:500 24px/1.25 var(--serif);overflow-wrap:anywhere}
.title b{font:500 34px/1 var(--serif);font-variant-numeric:lining-nums;text-align:right}
.title small{display:block;font:12px/1.4 var(--sans);color:var(--faint)}
.facts{font-size:13.5px;color:var(--soft);margin:6px 0 18px}
.instruction{font:17px/1.55 var(--serif);white-space:pre-wrap;overflow-wrap:anywhere;
 border-left:3px solid var(--rule);
 padding:2px 0 2px 18px;margin:22px 0}
.tests{display:flex;flex-wrap:wrap;gap:6px;margin:14px 0 0;padding:0;list-style:none;
 font:12.5px/1.5 var(--mono)}
.tests li{padding:2px 9px;border-radius:6px;overflow-wrap:anywhere}
.pass{color:var(--good);background:color-mix(in srgb,var(--good) 11%,transparent)}
.fail{color:var(--bad);background:color-mix(in srgb,var(--bad) 11%,transparent)}
ol.turns{list-style:none;margin:28px 0 0;padding:0}
ol.turns>li{display:grid;grid-template-columns:30px minmax(0,1fr);margin-bottom:20px}
ol.turns>li>span{font-size:13px;color:var(--faint);font-variant-numeric:tabular-nums;padding-top:11px}
.think{white-space:pre-wrap;overflow-wrap:anywhere;color:var(--soft);font-size:15px;margin:8px 0 8px}
.screen{background:var(--screen);border:1px solid var(--rule);border-radius:10px;overflow:hidden}
pre{margin:0;font:13px/1.55 var(--mono);white-space:pre-wrap;overflow-wrap:anywhere;padding:10px 14px}
pre.cmd{font-weight:600} pre.cmd i{font-style:normal;color:var(--rl);user-select:none}
pre.out{border-top:1px solid var(--rule);color:var(--soft);max-height:340px;overflow-y:auto}
kbd{font:12px/1 var(--mono);border:1px solid var(--rule);border-bottom-width:2px;border-radius:5px;
 padding:2px 6px;background:var(--card)}
.note{font-size:12.5px;color:var(--faint);margin-top:6px} .note .fail{padding:1px 7px;border-radius:5px}
.note details{display:inline} .note summary{display:inline;font-size:12.5px;color:var(--faint);
 text-decoration:underline dotted}
.tokens{font:13px/1.9 var(--mono);white-space:pre-wrap;overflow-wrap:anywhere;color:var(--ink);margin-top:6px}
.tokens span{border-radius:3px;padding:2px 0;box-shadow:inset 0 0 0 .5px var(--rule);
 background:color-mix(in srgb,var(--rl) calc((1 - var(--p))*70%),transparent)}
.end{margin-left:30px;padding-top:16px;border-top:1px solid var(--rule);font-size:14px;color:var(--soft)}
.legend{font-size:12px;color:var(--faint);margin-top:7px}
table{border-collapse:collapse;width:100%;font-size:13.5px;margin-top:20px}
th,td{text-align:left;padding:5px 12px 5px 0;border-bottom:1px solid var(--rule);overflow-wrap:anywhere;
 font-variant-numeric:tabular-nums} th{color:var(--soft)}
footer{padding-top:56px;padding-bottom:72px;font-size:13px;color:var(--faint)}
@media(max-width:860px){.browser{grid-template-columns:minmax(0,1fr)}.list{position:static;max-height:300px}
 article{padding:22px 18px}.two{grid-template-columns:minmax(0,1fr)}
 main,header.top,footer,nav div{padding-left:20px;padding-right:20px}}
@media print{nav,.list{display:none}.browser{display:block}article[hidden]{display:block}
 article{margin-bottom:24px}}
"""

# Shows one trajectory at a time; the arrow keys walk through the list. Without it all of them are shown.
SCRIPT = """
const buttons=[...document.querySelectorAll('.list button')];
const pages=[...document.querySelectorAll('.browser article')];
function show(id,focus){let i=Math.max(0,buttons.findIndex(b=>b.dataset.page===id));
 pages.forEach(p=>p.hidden=p.id!==buttons[i].dataset.page);
 buttons.forEach((b,k)=>{b.setAttribute('aria-selected',k===i);b.tabIndex=k===i?0:-1});
 if(focus){buttons[i].focus();history.replaceState(null,'','#'+buttons[i].dataset.page)}}
buttons.forEach((b,i)=>{b.onclick=()=>show(b.dataset.page,true);
 b.onkeydown=e=>{const d={ArrowDown:1,ArrowUp:-1}[e.key];if(d){e.preventDefault();
  show(buttons[(i+d+buttons.length)%buttons.length].dataset.page,true)}}});
if(buttons.length){show(location.hash.slice(1),false);addEventListener('hashchange',()=>{
 if(pages.some(p=>p.id===location.hash.slice(1)))show(location.hash.slice(1),false)})}
"""


def figure(title: str, drawing: str, note: str = "", tag: str = "") -> str:
    """A chart with its title, a tag beside it and a line under it. Texts are escaped, `drawing` is HTML."""
    label = f'<span class="tag">{escape(tag)}</span>' if tag else ""
    below = f"<p>{escape(note)}</p>" if note else ""
    return f"<figure><figcaption><h3>{escape(title)}{label}</h3>{below}</figcaption>{drawing}</figure>"


def section(anchor: str, title: str, text: str, body: str) -> str:
    """A section with its heading and a paragraph that says how to read it."""
    return f'<section id="{anchor}"><h2>{escape(title)}</h2><p class="say">{escape(text)}</p>{body}</section>'


def key(entries: Sequence[tuple[str, str]]) -> str:
    """A colour key: (colour, meaning) each."""
    items = "".join(
        f'<span><i style="background:{color}"></i>{escape(name)}</span>' for color, name in entries
    )
    return f'<div class="key">{items}</div>'


def page(*, title: str, header: str, sections: Sequence[tuple[str, str, str]], footer: str) -> str:
    """The whole document.

    Args:
      title: of the window.
      header: HTML above the navigation.
      sections: (anchor, name in the navigation, HTML) each.
      footer: text.
    """
    links = "".join(f'<a href="#{anchor}">{escape(name)}</a>' for anchor, name, _ in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>"
        f'<header class="top">{header}</header><nav><div>{links}</div></nav>\n<main>'
        + "\n".join(body for _, _, body in sections)
        + f"</main>\n<footer>{escape(footer)}</footer><script>{SCRIPT}</script></body></html>\n"
    )
