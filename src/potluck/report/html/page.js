"use strict";
// The report is complete without this script. `Potluck.enliven` takes a part of a page, so that the live page can use it
// for the parts it fetches.
const Potluck = {};

// Nothing can be unfolded on paper, so everything is open for printing and folded again afterwards.
// A link to a folded section opens it.
Potluck.unfold = () => { const at = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1))); const fold = at && at.closest("details"); if (fold) { fold.open = true; at.scrollIntoView(); } };
addEventListener("hashchange", Potluck.unfold);
document.addEventListener("click", (event) => { const link = event.target.closest?.('a[href^="#"]'); if (link && link.hash === location.hash) Potluck.unfold(); });
Potluck.unfold();

addEventListener("beforeprint", () => document.querySelectorAll("details:not(.rest):not([open])").forEach((one) => { one.open = true; one.dataset.folded = "1"; }));
addEventListener("afterprint", () => document.querySelectorAll("details[data-folded]").forEach((one) => { one.open = false; delete one.dataset.folded; }));

Potluck.tabs = (root, chosen = {}) => root.querySelectorAll(".tabs:not(.on)").forEach((tabs) => {
  const pages = [...tabs.children];
  const place = tabs.closest("section")?.querySelector("h2")?.id || "";
  const bar = document.createElement("div");
  bar.className = "tabbar";
  bar.setAttribute("role", "tablist");
  const buttons = pages.map((page, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("role", "tab");
    button.append(...[...page.querySelector("h3").childNodes].map((node) => node.cloneNode(true)));
    page.setAttribute("role", "tabpanel");
    bar.append(button);
    button.addEventListener("click", () => show(i));
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = (i + step + pages.length) % pages.length;
      show(next);
      buttons[next].focus();
    });
    return button;
  });
  const show = (k) => {
    chosen[place] = k;
    pages.forEach((page, i) => { page.hidden = i !== k; });
    buttons.forEach((button, i) => { button.setAttribute("aria-selected", String(i === k)); button.tabIndex = i === k ? 0 : -1; });
  };
  tabs.classList.add("on");
  tabs.prepend(bar);
  show(Math.min(chosen[place] || 0, pages.length - 1));
});

// A click on a method in a legend fades it in every chart.
Potluck.faded = new Set();
Potluck.fade = (root) => root.querySelectorAll("g[data-series], text[data-series]").forEach((one) => one.classList.toggle("off", Potluck.faded.has(one.dataset.series)));
Potluck.legends = (root) => {
  root.querySelectorAll("li[data-series]").forEach((item) => {
    const name = item.dataset.series;
    const button = document.createElement("button");
    button.type = "button";
    button.title = "Show or fade in every chart";
    button.append(...item.childNodes);
    item.append(button);
    button.setAttribute("aria-pressed", String(!Potluck.faded.has(name)));
    button.addEventListener("click", () => {
      Potluck.faded.has(name) ? Potluck.faded.delete(name) : Potluck.faded.add(name);
      document.querySelectorAll("li[data-series] button").forEach((other) => other.setAttribute("aria-pressed", String(!Potluck.faded.has(other.parentNode.dataset.series))));
      Potluck.fade(document);
    });
  });
  Potluck.fade(root);
};

// The hint of a mark, at once and next to the finger: the browser's own hints come late, and on a phone not at all.
(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  const said = (target) => {
    const mark = target.closest?.("svg.chart circle, svg.chart polygon, svg.chart rect, svg.chart path, [data-tip]");
    return mark && (mark.dataset.tip || mark.querySelector(":scope > title")?.textContent || mark.dataset.said);
  };
  const move = (event) => {
    const text = said(event.target);
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const beside = event.clientX + tip.offsetWidth + 24 > innerWidth ? -tip.offsetWidth - 12 : 14;
    tip.style.left = `${Math.max(4, event.clientX + beside)}px`;
    tip.style.top = `${Math.max(4, event.clientY - tip.offsetHeight - 10)}px`;
  };
  addEventListener("pointermove", move);
  addEventListener("pointerdown", move);
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
})();

Potluck.enliven = (root, chosen) => { Potluck.tabs(root, chosen); Potluck.legends(root); };
Potluck.enliven(document);

// Sort and search the table of clients. A thousand rows take long to lay out, so after a change only the first ones are
// shown, and more while the reader scrolls.
(() => {
  const table = document.getElementById("client-table");
  if (!table) return;
  const AT_ONCE = 60;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, i) => {
    const cell = row.cells[i];
    return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent.toLowerCase();
  };
  const place = table.closest(".scroll");
  let wanted = "", left = [];
  const more = (count) => body.append(...left.splice(0, count));
  const show = () => {
    left = wanted ? rows.filter((row) => texts.get(row).includes(wanted)) : [...rows];
    body.replaceChildren(...left.splice(0, AT_ONCE));
    if (place) place.scrollTop = 0;
  };
  place?.addEventListener("scroll", () => {
    if (left.length && place.scrollTop + 2 * place.clientHeight > place.scrollHeight) more(AT_ONCE);
  }, { passive: true });
  addEventListener("beforeprint", () => more(left.length));
  heads.forEach((head, i) => {
    if (head.querySelector(".scale")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const way = down ? -1 : 1;
      const keys = new Map(rows.map((row) => [row, value(row, i)]));
      rows.sort((a, b) => {
        const x = keys.get(a), y = keys.get(b);
        return x < y ? -way : x > y ? way : 0;
      });
      show();
    });
  });
  const texts = new Map();
  if (rows.length > 8) {
    const find = document.createElement("input");
    find.type = "search";
    find.className = "find";
    find.placeholder = "Find a client, device or link";
    find.setAttribute("aria-label", find.placeholder);
    rows.forEach((row) => texts.set(row, value(row, 0)));
    find.addEventListener("input", () => {
      wanted = find.value.trim().toLowerCase();
      show();
    });
    table.closest(".tall").before(find);
  }
})();

// Search the cards for a device.
(() => {
  const place = document.getElementById("device-cards");
  const cards = place ? [...place.querySelectorAll(".card")] : [];
  if (cards.length <= 8) return;
  const find = document.createElement("input");
  find.type = "search";
  find.className = "find";
  find.placeholder = "Find a device by its name, kind or link";
  find.setAttribute("aria-label", find.placeholder);
  const folded = place.querySelectorAll(".rest");
  const texts = cards.map((card) => `${card.querySelector("h4").textContent} ${card.querySelector(".device").textContent}`.toLowerCase());
  find.addEventListener("input", () => {
    const wanted = find.value.trim().toLowerCase();
    folded.forEach((rest) => { rest.open = wanted !== ""; });
    cards.forEach((card, i) => { card.hidden = !texts[i].includes(wanted); });
  });
  place.before(find);
})();
