
// The live page. It stores no figures: a stream sends the progress of the runs, and everything else is requested for the
// moment on the slider. So the page, its server and a run may each be stopped and started in any order.
(() => {
  const at = (id) => document.getElementById(id);
  const status = at("status"), scrub = at("scrub"), live = at("live"), play = at("play");
  const runs = new Map(); // id -> { head, roster, panel, tiles, shown }
  const chosen = {}; // open tabs, kept when sections are redrawn
  const STEPS = 1000; // of the slider
  let now = null; // the moment that is shown; null follows the newest
  let end = 0; // the latest moment of any run
  let playing = null, waiting = false, again = false, viewed = "", viewing = false, viewAgain = false;

  const UNITS = [[3 * 86400, 86400, "d"], [3 * 3600, 3600, "h"], [600, 60, "min"], [1, 1, "s"], [0, 1e-3, "ms"]];
  const seconds = (value) => {
    if (!value) return "0 s";
    const [, by, unit] = UNITS.find(([from]) => value >= from);
    return `${Number((value / by).toPrecision(3)).toLocaleString("en")}\u00a0${unit}`;
  };
  const score = (value, metric) => value === null || value === undefined ? "–" : metric.share ? `${(100 * value).toFixed(1)}\u00a0%` : `${metric.words} ${+value.toPrecision(4)}`;
  const make = (name, attributes = {}, ...children) => {
    const one = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) key === "class" ? one.className = value : one.setAttribute(key, value);
    one.append(...children);
    return one;
  };
  const ask = async (path, query) => {
    const found = await fetch(`${path}?${new URLSearchParams(query)}`);
    if (!found.ok) throw new Error(await found.text());
    return found;
  };
  const moment = () => now === null ? {} : { at: now };

  const DOING = { w: "waiting", d: "receiving its task", t: "training", u: "sending its answer", a: "just answered", r: "its last answer was refused", x: "its last answer was lost or late", n: "its device is too small to train", "-": "not asked yet" };

  const TOLD = { repeat: "refused", unfit: "too small" }; // words for outcomes that differ from those in the database

  function panelOf(id, run) {
    const title = make("span"), big = make("b", { class: "big" }), line = make("p"), bar = make("progress", { max: 1, value: 0 });
    const tiles = make("div", { class: "tiles", role: "group", "aria-label": `Devices of ${run.head.name}` });
    const panel = make("article", { class: "run", "data-run": id }, make("h2", {}, title, big), line, bar, tiles);
    Object.assign(run, { panel, title, big, line, bar, tiles, buttons: [] });
    tiles.addEventListener("click", (event) => {
      const tile = event.target.closest(".tile");
      if (tile) openCard(id, run.roster[run.buttons.indexOf(tile)].name);
    });
    tiles.addEventListener("keydown", (event) => { // one tab stop, arrow keys within
      const i = run.buttons.indexOf(document.activeElement);
      const across = Math.max(1, Math.round(tiles.clientWidth / (run.buttons[0].offsetWidth + 2)));
      const to = i + ({ ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key] || 0);
      if (to === i || !run.buttons[to]) return;
      event.preventDefault();
      run.buttons[i].tabIndex = -1;
      run.buttons[to].tabIndex = 0;
      run.buttons[to].focus();
    });
    const first = [...runs.values()].find((one) => one !== run && one.panel && !one.folded && one.head.method === run.head.method && one.head.data === run.head.data && one.head.seed !== run.head.seed);
    if (!first) { at("runs").append(panel); return; }
    run.folded = true; // the first run of a method stands for its other seeds
    if (!first.seeds) {
      first.seeds = make("details", { class: "seeds" }, make("summary"));
      first.panel.append(first.seeds);
    }
    first.seeds.append(panel);
    const many = first.seeds.querySelectorAll("article").length;
    first.seeds.firstChild.textContent = `${many} more ${many === 1 ? "seed" : "seeds"} of ${run.head.method}`;
  }

  function tilesOf(run) {
    const many = run.roster.length, roomy = many <= 60;
    const size = roomy ? "4.6rem" : many <= 300 ? "1.5rem" : "1rem";
    run.tiles.style.cssText = `--size:${size};--gap:${roomy ? "5px" : "2px"};--high:${roomy ? "2.7rem" : size}`;
    run.buttons = run.roster.map((client, i) => {
      const tile = make("button", { type: "button", class: "tile", tabindex: i ? -1 : 0, "aria-label": `${client.name}, ${client.device}` });
      if (roomy) tile.append(make("b", {}, client.name), make("span"));
      return tile;
    });
    run.roomy = roomy;
    run.tiles.replaceChildren(...run.buttons);
    run.tiles.addEventListener("pointerover", (event) => describe(run, event.target.closest(".tile")));
    run.tiles.addEventListener("focusin", (event) => describe(run, event.target.closest(".tile")));
  }

  const unit = (run, value) => !run.head.metric.share ? `${run.head.metric.words} ${value}` : run.head.metric.words === "accuracy" ? `${value} % correct` : `${run.head.metric.words} ${value} %`;

  // The fifth of a tile's colour: of a share, or of the way from the largest error to none.
  function fifth(run, value, all) {
    const part = run.head.metric.share ? value / 100 : 1 - value / (Math.max(...all) || 1);
    return Math.max(0, Math.min(4, Math.floor(5 * part)));
  }

  function describe(run, tile) {
    const i = run.buttons.indexOf(tile);
    if (i < 0 || !run.shown) return;
    const client = run.roster[i], share = run.shown.shares[i];
    const text = `${client.name}, ${client.device} on ${client.link}: ${DOING[run.shown.tiles[i]]}${share < 0 ? "" : `, ${unit(run, share)}`}`;
    tile.dataset.tip = text;
    tile.setAttribute("aria-label", text);
  }

  function showHead(run) {
    const { head } = run, shown = run.shown || {};
    run.title.replaceChildren(make("span", { class: head.state === "running" || head.state === "finished" ? "tag" : "tag warn" }, head.state), head.name);
    run.big.textContent = score(shown.accuracy ?? head.accuracy, head.metric);
    const round = shown.round ?? head.round;
    const parts = [`${head.method}, seed ${head.seed}`, `round ${round.toLocaleString("en")}${head.rounds ? ` of ${head.rounds.toLocaleString("en")}` : ""}`, `${seconds(shown.at ?? head.virtual)} ${head.clock}`, `${head.clients.toLocaleString("en")} clients`];
    if (now === null && head.at_work) parts.push(`${head.at_work.toLocaleString("en")} busy`);
    parts.push(`${shown.refused ?? head.refused} refused`, `${shown.lost ?? head.lost} lost`);
    const unfit = shown.unfit ?? head.unfit;
    if (unfit) parts.push(`${unfit.toLocaleString("en")} too small to train`);
    run.line.textContent = parts.join(", ");
    const at = shown.at ?? head.virtual;
    const done = Math.max(head.rounds ? round / head.rounds : 0, head.seconds ? at / head.seconds : 0);
    run.bar.value = head.rounds || head.seconds ? Math.min(1, done) : end ? at / end : 0;
  }

  function showTiles(run, shown) {
    const before = run.shown;
    run.shown = shown;
    run.buttons.forEach((tile, i) => {
      const share = shown.shares[i], doing = shown.tiles[i];
      if (!before || !run.head.metric.share || before.shares[i] !== share) {
        tile.className = share < 0 ? "tile" : `tile q${fifth(run, share, shown.shares)}`;
        if (run.roomy) tile.lastChild.textContent = share < 0 ? "–" : run.head.metric.share ? `${share} %` : `${share}`;
      }
      if (!before || before.tiles[i] !== doing) tile.dataset.a = doing;
    });
    showHead(run);
  }

  function showFeed() {
    const told = [...runs.values()].flatMap((run) => (run.shown?.troubles || []).map((one) => ({ ...one, run: run.head.name })));
    told.sort((a, b) => b.at - a.at);
    const lines = told.slice(0, 10).map((one) => make("li", {}, make("time", {}, seconds(one.at)), make("span", { class: one.what }, TOLD[one.what] || one.what), make("b", {}, one.client), make("span", {}, one.why.replace(/^does not fit: /, "") || "no reason given"), ...(runs.size > 1 ? [make("small", {}, one.run)] : [])));
    at("feed").replaceChildren(...(lines.length ? lines : [make("li", {}, "None so far.")]));
  }

  // One request at a time: dragging the slider quickly shows the last moment, not all of them in turn.
  async function look() {
    if (document.hidden) return; // the page is not visible
    if (waiting) { again = true; return; }
    waiting = true;
    try {
      do {
        again = false;
        const asked = moment();
        await Promise.all([...runs].map(async ([id, run]) => {
          if (!run.roster || (run.roster.length === 0 && run.head.clients)) {
            run.roster = await (await ask("roster", { run: id })).json();
            tilesOf(run);
            run.shown = null;
          }
          showTiles(run, await (await ask("moment", { run: id, ...asked })).json());
        }));
        showFeed();
      } while (again);
      views();
    } catch (error) { trouble(error); } finally { waiting = false; }
  }

  // Sections cost more than tiles: they are drawn when the slider rests. While a run goes on they take at most a sixth of
  // the time, because the run may need the same processor.
  let resting = 0, drawn = -Infinity, cost = 0, shownOf = null; // the request that the sections on the page belong to
  const asked = () => JSON.stringify([now, [...runs].map(([id, run]) => [id, run.head.step, run.head.state])]);
  function views() {
    if ((resting && now === null) || asked() === shownOf) return;
    clearTimeout(resting);
    if (now !== null) at("views").classList.add("old");
    const pause = now === null ? Math.max(150, drawn + 5 * cost - performance.now()) : playing ? 900 : 150;
    resting = setTimeout(() => { resting = 0; drawViews(); }, pause);
  }
  async function drawViews() {
    if (viewing) { viewAgain = true; return; }
    viewing = true;
    const began = performance.now(), question = asked();
    try {
      const text = await (await ask("views", moment())).text();
      if (text !== viewed) {
        viewed = text;
        const place = at("views"), kept = [...place.querySelectorAll(".scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
        const open = [...place.querySelectorAll("details")].map((one) => one.open);
        place.innerHTML = text; // from our server, which escapes all names
        Potluck.enliven(place, chosen);
        place.querySelectorAll(".scroll").forEach((one, i) => { if (kept[i]) [one.scrollLeft, one.scrollTop] = kept[i]; });
        place.querySelectorAll("details").forEach((one, i) => { if (i in open) one.open = open[i]; });
      }
      shownOf = question;
      at("views").classList.remove("old");
    } catch (error) {
      trouble(error);
      if (!(error instanceof TypeError)) at("views").textContent = viewed = error.message; // the server answered with an error
    } finally {
      viewing = false;
      drawn = performance.now();
      cost = drawn - began;
      if (viewAgain) { viewAgain = false; views(); }
    }
  }

  async function openCard(id, client) {
    const dialog = at("device");
    at("card").textContent = "…";
    if (!dialog.open) dialog.showModal();
    try { at("card").innerHTML = await (await ask("card", { run: id, client, ...moment() })).text(); } catch (error) { at("card").textContent = error.message; }
  }
  at("close").addEventListener("click", () => at("device").close());
  at("device").addEventListener("click", (event) => { if (event.target === at("device")) at("device").close(); });

  // The slider.
  function showBar() {
    const shown = now ?? end;
    scrub.value = end ? Math.round(shown / end * STEPS) : STEPS;
    at("moment").textContent = `${seconds(shown)} of ${seconds(end)}`;
    scrub.setAttribute("aria-valuetext", at("moment").textContent);
    live.setAttribute("aria-pressed", String(now === null));
  }
  const go = (to) => { now = to; showBar(); look(); };
  const stop = () => { clearInterval(playing); playing = null; play.textContent = "▶"; play.setAttribute("aria-label", "Play"); };
  scrub.addEventListener("input", () => { stop(); go(Number(scrub.value) / STEPS * end); });
  live.addEventListener("click", () => { stop(); go(null); });
  play.addEventListener("click", () => {
    if (playing) { stop(); return; }
    if (now === null || now >= end) now = 0;
    play.textContent = "❚❚";
    play.setAttribute("aria-label", "Pause");
    playing = setInterval(() => { // all of the run in half a minute
      if (waiting) return;
      const next = now + end / 240;
      if (next >= end) stop();
      go(Math.min(end, next));
    }, 125);
  });

  document.addEventListener("visibilitychange", () => { if (!document.hidden && runs.size) look(); });

  // The stream.
  function told(heads) {
    status.className = "on";
    const sets = new Set(heads.map((head) => head.data));
    status.textContent = heads.length ? `Watching ${heads.length === 1 ? heads[0].name : `${heads.length} runs`} on ${sets.size > 1 ? `${sets.size} data sets` : heads[0].data}` : "No run has started yet; this page waits for one.";
    document.title = heads.length === 1 ? `${heads[0].name} – Potluck` : `${heads.length} runs – Potluck`;
    const seen = new Set(heads.map((head) => head.id));
    for (const [id, run] of runs) if (!seen.has(id)) { run.panel.remove(); runs.delete(id); }
    for (const head of heads) {
      const run = runs.get(head.id) || {};
      run.head = head;
      if (!runs.has(head.id)) { runs.set(head.id, run); panelOf(head.id, run); }
      showHead(run);
    }
    end = Math.max(0, ...heads.map((head) => head.virtual));
    showBar();
    if (shownOf === null) drawViews(); // at the start, together with the tiles
    if (now === null || [...runs.values()].some((run) => !run.shown)) look();
  }
  const trouble = (error) => { status.className = "gone"; status.textContent = error instanceof TypeError ? "The server does not answer; trying again …" : error.message; };
  function connect() {
    const stream = new EventSource("events");
    stream.addEventListener("runs", (event) => told(JSON.parse(event.data)));
    stream.addEventListener("trouble", (event) => trouble(new Error(JSON.parse(event.data))));
    const again = () => {
      clearTimeout(silent);
      stream.close();
      trouble(new TypeError());
      setTimeout(connect, 1000);
    };
    const silent = setTimeout(again, 5000); // a server that is going away may take a connection and never answer it
    stream.onopen = () => clearTimeout(silent);
    stream.onerror = again;
  }
  connect();
})();
