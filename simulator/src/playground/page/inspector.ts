import type { ApiCall, DeliveryRecord, PlaygroundEvent } from "../routes.ts";
import { button, type Child, element } from "./element.ts";
import { limitsPanel, type Usage } from "./limits-panel.ts";
import { lastWritten, type Store } from "./store.ts";
import type { Words } from "./words.ts";

interface InspectorParts {
  store: Store;
  words: Words;
  usage: Usage;
  act: (path: string, body?: object) => Promise<boolean>;
}

/** The switches for faults, and what the platform received and delivered. */
export interface Inspector {
  readonly root: HTMLElement;
  update(event: PlaygroundEvent | undefined): void;
  stop(): void;
}

const shownRows = 100;

export function inspector(parts: InspectorParts): Inspector {
  const { store, words } = parts;
  const faults = faultPanel(parts);
  const calls = logOf(words.calls, words.noCalls);
  const deliveries = logOf(words.deliveries, words.noDeliveries);
  for (const call of store.state.calls) calls.add(callRow(call, words));
  for (const delivery of store.state.deliveries) deliveries.add(deliveryRow(delivery, parts));
  const limits = limitsPanel({ ...parts, onOpen: () => tabs.open("limits") });
  const activity = element("div", { class: "activity" }, [deliveries.root, calls.root]);
  const tabs = tabsOf(words.inspector, [
    { id: "activity", label: words.activity, panel: activity },
    { id: "limits", label: words.limits, panel: limits.root },
    { id: "faults", label: words.faults, panel: faults.root },
  ]);
  return {
    root: element("aside", { class: "side", "aria-label": words.inspector }, [
      element("h2", {}, [words.inspector]),
      limits.strip,
      tabs.root,
    ]),
    update(event) {
      faults.update();
      limits.update(event);
      if (event?.type === "call") calls.add(callRow(event.call, words));
      if (event?.type === "delivery") deliveries.add(deliveryRow(event.delivery, parts));
    },
    stop: limits.stop,
  };
}

interface Tab {
  id: string;
  label: string;
  panel: HTMLElement;
}

/** Tabs with the keys of tabs: arrows move, the chosen one is kept for the next visit. */
function tabsOf(label: string, tabs: readonly Tab[]): { root: HTMLElement; open: (id: string) => void } {
  const heads = tabs.map((tab) => button(tab.label, { role: "tab", id: `tab-${tab.id}` }, () => open(tab.id)));
  const open = (id: string): void => {
    for (const [index, tab] of tabs.entries()) {
      const chosen = tab.id === id;
      tab.panel.hidden = !chosen;
      heads[index]?.setAttribute("aria-selected", String(chosen));
      heads[index]?.setAttribute("tabindex", chosen ? "0" : "-1");
    }
    sessionStorage.setItem("tab", id);
  };
  const move = (event: KeyboardEvent, step: number): void => {
    const at = heads.findIndex((head) => head === document.activeElement);
    const next = heads[(at + step + heads.length) % heads.length];
    event.preventDefault();
    next?.focus();
    next?.click();
  };
  const list = element("div", { class: "tabs", role: "tablist", "aria-label": label }, heads);
  list.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") move(event, 1);
    if (event.key === "ArrowLeft") move(event, -1);
  });
  const stored = sessionStorage.getItem("tab");
  const panels = tabs.map(({ id, panel }) => {
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", `tab-${id}`);
    return panel;
  });
  open(tabs.some(({ id }) => id === stored) ? (stored ?? "") : (tabs[0]?.id ?? ""));
  return { root: element("div", { class: "tabbed" }, [list, ...panels]), open };
}

interface Log {
  root: HTMLElement;
  add(row: HTMLElement): void;
}

function logOf(title: string, empty: string): Log {
  const note = element("p", { class: "empty" }, [empty]);
  const rows = element("ol", { class: "log", tabindex: "0", "aria-label": title });
  return {
    root: element("section", { class: "box" }, [element("h3", {}, [title]), note, rows]),
    add(row) {
      note.remove();
      rows.prepend(row);
      while (rows.childElementCount > shownRows) rows.lastElementChild?.remove();
    },
  };
}

function logRow(good: boolean, title: string, facts: readonly Child[]): HTMLElement {
  return element("li", { class: good ? "good" : "bad" }, [
    element("span", { class: "dot", "aria-hidden": "true" }),
    element("div", {}, [element("code", { title }, [title]), element("div", { class: "facts" }, facts)]),
  ]);
}

function callRow(call: ApiCall, words: Words): HTMLElement {
  const short = call.path
    .replace(/^\/open-apis/, "")
    .replaceAll(/(o[mcu]_)[0-9a-f]+([0-9a-f]{4})/g, "$1…$2")
    .replaceAll(/\d{12,}(\d{4})/g, "…$1");
  const status = call.status === 0 ? words.noAnswer : `HTTP ${call.status}`;
  return logRow(call.status === 200 && call.code === 0, `${call.method} ${short}`, [
    element("span", {}, [status]),
    call.status === 0 ? undefined : element("span", {}, [`code ${call.code}`]),
    element("span", {}, [`${call.durationMs} ms`]),
    clock(call.at),
  ]);
}

function deliveryRow(delivery: DeliveryRecord, { store, words }: InspectorParts): HTMLElement {
  const written = delivery.messageId === undefined ? undefined : store.message(delivery.messageId);
  const about = written === undefined ? "" : `“${written.text.slice(0, 40)}”`;
  const via = { webhook: words.webhook, websocket: words.websocket, none: words.none }[delivery.transport];
  return logRow(delivery.acknowledged, `${delivery.eventType} ${about}`, [
    element("span", {}, [via]),
    element("span", {}, [words.attempt.replace("{n}", String(delivery.attempt))]),
    element("span", {}, [delivery.acknowledged ? words.acknowledged : `${words.failed}: ${delivery.error ?? ""}`]),
    element("span", {}, [`${delivery.durationMs} ms`]),
    clock(delivery.at),
  ]);
}

function clock(at: number): HTMLElement {
  const time = new Date(at);
  return element("time", { datetime: time.toISOString() }, [time.toLocaleTimeString([], { hour12: false })]);
}

interface FaultParts {
  store: Store;
  words: Words;
  act: (path: string, body?: object) => Promise<boolean>;
}

const kinds = [
  ["failCalls", "error"],
  ["limitCalls", "limit"],
  ["slowCalls", "slow"],
  ["loseAnswers", "lost"],
] as const;

/** The switches for faults. */
function faultPanel({ store, words, act }: FaultParts): { root: HTMLElement; update(): void } {
  const times = element("input", { type: "number", min: "1", max: "100", value: "3", inputmode: "numeric" });
  const armed = element("span", { class: "armed", role: "status" });
  const clear = button(words.clearFaults, {}, () => void act("clear-faults"));
  const redeliver = button(words.redeliverLast, {}, () => {
    const last = lastWritten(store.state);
    if (last !== undefined) void act("redeliver", { messageId: last.messageId });
  });
  const arm = (kind: string): void => void act("faults", { kind, times: Number(times.value) });
  const transport = transportSwitch({ store, words, act });
  const root = element("section", { class: "box", "aria-label": words.faults }, [
    element("h3", {}, [words.faults]),
    element("div", { class: "buttons" }, [
      redeliver,
      button(words.dropConnection, {}, () => void act("drop-connections")),
      button(words.expireToken, {}, () => void act("expire-tokens")),
    ]),
    element("label", { class: "row" }, [words.times, times]),
    element(
      "div",
      { class: "buttons" },
      kinds.map(([word, kind]) => button(words[word], {}, () => arm(kind))),
    ),
    element("div", { class: "row" }, [armed, clear]),
    transport.root,
  ]);
  const update = (): void => {
    const { faults } = store.state;
    armed.textContent = faults > 0 ? words.armed.replace("{n}", String(faults)) : "";
    clear.hidden = faults === 0;
    redeliver.toggleAttribute("disabled", lastWritten(store.state) === undefined);
    transport.update();
  };
  update();
  return { root, update };
}

function transportSwitch({ store, words, act }: FaultParts): { root: HTMLElement; update(): void } {
  const names = ["auto", "websocket", "webhook"] as const;
  const select = element(
    "select",
    { onchange: () => void act("transport", { transport: select.value }) },
    names.map((name) => element("option", { value: name }, [words[name]])),
  );
  return {
    root: element("label", { class: "row" }, [words.transport, select]),
    update() {
      const chosen = store.state.apps[0]?.transport;
      if (chosen !== undefined) select.value = chosen;
    },
  };
}
