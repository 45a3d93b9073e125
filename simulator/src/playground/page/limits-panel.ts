import type { ApiCall, CardFacts, LimitRefusal, PlaygroundEvent, SimCardView, SimMessage } from "../routes.ts";
import { cardSize, isPart, mount, node, type ViewElement } from "./view-node.ts";
import { button, element } from "./element.ts";
import { byTime, get, type Store } from "./store.ts";
import type { Words } from "./words.ts";

interface LimitsPanel {
  readonly root: HTMLElement;
  /** A line that is always to be seen. */
  readonly strip: HTMLElement;
  update(event: PlaygroundEvent | undefined): void;
  stop(): void;
}

interface LimitsParts {
  store: Store;
  words: Words;
  usage: Usage;
  /** Opens the panel. */
  onOpen: () => void;
}

/** Limits of the platform: gateway, card entity, card JSON, and the free edition's month. */
const limits = {
  perSecond: 50,
  perMinute: 1000,
  cardPerSecond: 10,
  cardBytes: 30 * 1024,
  cardElements: 200,
  month: 10_000,
} as const;
const drawEveryMs = 500;
const shownCards = 4;
const shownApis = 10;
const shownRefusals = 30;

/** How near the bot is to each limit, and what was refused. */
export function limitsPanel(parts: LimitsParts): LimitsPanel {
  const { store, words } = parts;
  const facts = new Map<string, CardFacts>();
  const panel = mount(panelView(parts, facts));
  const strip = mount(stripView(parts));
  const open = button(words.limits, { class: "strip-open", "aria-label": words.limits }, parts.onOpen);
  let drawn = 0;
  const draw = (): void => {
    drawn = Date.now();
    strip.show(stripView(parts));
    if (panel.root.checkVisibility()) panel.show(panelView(parts, facts));
  };
  const refresh = async (): Promise<void> => {
    if (panel.root.checkVisibility()) {
      const cards = latestCards(store).flatMap(({ card }) => card?.cardId ?? []);
      for (const cardId of cards) {
        const told = await get(`/api/cards/${cardId}`);
        if (isPart(told)) facts.set(cardId, told as unknown as CardFacts); // Our own server writes it.
      }
      for (const known of facts.keys()) if (!cards.includes(known)) facts.delete(known);
    }
    draw();
  };
  const timer = setInterval(() => void refresh(), drawEveryMs);
  return {
    root: panel.root,
    strip: element("div", { class: "strip" }, [strip.root, open]),
    update(event) {
      if (event?.type === "refusal" || Date.now() - drawn > drawEveryMs) draw();
    },
    stop: () => clearInterval(timer),
  };
}

function latestCards(store: Store): SimMessage[] {
  return store.state.messages
    .filter(({ card }) => card?.cardId !== undefined)
    .toSorted(byTime)
    .slice(-shownCards)
    .toReversed();
}

function stripView({ store, words, usage }: LimitsParts): ViewElement {
  const now = Date.now();
  const rows = usage.rows(now);
  const second = Math.max(0, ...rows.map(({ lastSecond }) => lastSecond));
  const minute = Math.max(0, ...rows.map(({ lastMinute }) => lastMinute));
  const refused = store.state.refusals.length;
  return node("dl", { class: "strip-facts" }, [
    fact(words.perSecond, `${second}/${limits.perSecond}`, second >= limits.perSecond * 0.8),
    fact(words.perMinute, `${minute}/${limits.perMinute}`, minute >= limits.perMinute * 0.8),
    fact(words.thisMonth, String(store.state.monthCalls), store.state.monthCalls >= limits.month * 0.8),
    fact(words.refused, String(refused), refused > 0),
  ]);
}

function fact(label: string, value: string, warns: boolean): ViewElement {
  return node("div", { class: warns ? "warns" : undefined }, [node("dt", {}, [label]), node("dd", {}, [value])]);
}

function panelView(parts: LimitsParts, facts: ReadonlyMap<string, CardFacts>): ViewElement {
  const { store, words } = parts;
  return node("div", { class: "limits" }, [
    section(words.quota, [meter(words.thisMonth, store.state.monthCalls, limits.month)]),
    section(words.cards, cardViews(parts, facts)),
    section(words.apis, apiViews(parts)),
    section(words.refusals, refusalViews(parts)),
  ]);
}

function section(title: string, children: readonly ViewElement[]): ViewElement {
  return node("section", { class: "box", "aria-label": title }, [node("h3", {}, [title]), ...children]);
}

/** A bar; the words beside it say the same. */
function meter(label: string, value: number, limit: number): ViewElement {
  const share = Math.min(100, (value / limit) * 100);
  const level = share >= 100 ? " full" : share >= 80 ? " near" : "";
  return node("div", { class: `meter${level}` }, [
    node("span", { class: "meter-label" }, [label]),
    node("span", { class: "meter-value" }, [`${value.toLocaleString("en")} / ${limit.toLocaleString("en")}`]),
    node("span", { class: "meter-bar", "aria-hidden": "true" }, [
      node("span", { class: "meter-fill", "--share": `${share.toFixed(1)}%` }),
    ]),
  ]);
}

function apiViews({ words, usage }: LimitsParts): ViewElement[] {
  const rows = usage.rows(Date.now()).slice(0, shownApis);
  if (rows.length === 0) return [node("p", { class: "empty" }, [words.quiet])];
  return rows.map(({ api, lastSecond, lastMinute }) =>
    node("div", { class: "api", key: api }, [
      node("code", { title: api }, [api]),
      meter(words.perSecond, lastSecond, limits.perSecond),
      meter(words.perMinute, lastMinute, limits.perMinute),
    ]),
  );
}

function cardViews(parts: LimitsParts, facts: ReadonlyMap<string, CardFacts>): ViewElement[] {
  const cards = latestCards(parts.store);
  if (cards.length === 0) return [node("p", { class: "empty" }, [parts.words.noCards])];
  return cards.flatMap(({ card, messageId }) =>
    card?.cardId === undefined
      ? []
      : [node("div", { class: "card-facts", key: messageId }, cardView(parts, card, facts.get(card.cardId)))],
  );
}

function cardView(
  { words, usage }: LimitsParts,
  { cardId = "", json, streaming }: SimCardView,
  known: CardFacts | undefined,
): ViewElement[] {
  const { bytes, elements } = cardSize(json);
  return [
    node("div", { class: "row" }, [
      node("code", {}, [`…${cardId.slice(-6)}`]),
      node("span", { class: streaming ? "tag live" : "tag" }, [streaming ? words.streaming : words.still]),
    ]),
    node("p", { class: "facts" }, known === undefined ? [] : countViews(known, words)),
    meter(words.cardPerSecond, usage.onCard(cardId, Date.now()), limits.cardPerSecond),
    meter(words.bytes, bytes, limits.cardBytes),
    meter(words.elements, elements, limits.cardElements),
  ];
}

function countViews({ sequence, frames, operations, latest }: CardFacts, words: Words): ViewElement[] {
  const refused = latest.filter(({ code }) => code !== 0).length;
  const counts: [string, number][] = [
    [words.sequence, sequence],
    [words.frames, frames],
    [words.operations, operations],
    ...(refused === 0 ? [] : [[words.refused, refused] satisfies [string, number]]),
  ];
  return counts.map(([label, count]) => node("span", {}, [`${label} ${count}`]));
}

function refusalViews({ store, words }: LimitsParts): ViewElement[] {
  const refusals = store.state.refusals.slice(-shownRefusals).toReversed();
  if (refusals.length === 0) return [node("p", { class: "empty" }, [words.noRefusals])];
  return [
    node(
      "ol",
      { class: "log refusals" },
      refusals.map((refusal) => refusalView(refusal, words)),
    ),
  ];
}

function refusalView({ api, key, code, at }: LimitRefusal, words: Words): ViewElement {
  const what = code === 99991400 ? words.gatewayLimit : words.businessLimit;
  return node("li", { class: "bad", key: `${at} ${key}` }, [
    node("span", { class: "dot", "aria-hidden": "true" }),
    node("div", {}, [
      node("code", { title: `${api} ${key}` }, [api.replace(/ \/open-apis/, " ")]),
      node("div", { class: "facts" }, [
        node("span", {}, [`${what} ${code}`]),
        node("span", {}, [key.length > 12 ? `${key.slice(0, 10)}…` : key]),
        node("time", {}, [new Date(at).toLocaleTimeString([], { hour12: false })]),
      ]),
    ]),
  ]);
}

/** How much an API was called lately. */
interface ApiUsage {
  api: string;
  lastSecond: number;
  lastMinute: number;
}

/** Calls of the last minute, counted as the platform does: by API and by card. */
export interface Usage {
  count(call: ApiCall): void;
  /** The APIs of the last minute, most called first. */
  rows(now: number): ApiUsage[];
  /** Operations on a card in the last second. */
  onCard(cardId: string, now: number): number;
}

const windowMs = 60_000;

export function createUsage(): Usage {
  let calls: { api: string; cardId: string | undefined; at: number }[] = [];
  return {
    count({ method, path, at }) {
      const cardId = /^\/open-apis\/cardkit\/v1\/cards\/(\d+)/.exec(path)?.[1];
      calls.push({ api: `${method} ${apiOf(path)}`, cardId, at });
    },
    rows(now) {
      calls = calls.filter(({ at }) => now - at < windowMs);
      const rows = new Map<string, ApiUsage>();
      for (const { api, at } of calls) {
        const row = rows.get(api) ?? { api, lastSecond: 0, lastMinute: 0 };
        row.lastMinute += 1;
        if (now - at < 1000) row.lastSecond += 1;
        rows.set(api, row);
      }
      return [...rows.values()].toSorted((left, right) => right.lastMinute - left.lastMinute);
    },
    onCard: (cardId, now) => calls.filter((call) => call.cardId === cardId && now - call.at < 1000).length,
  };
}

/** The path with ids as `:id`: what is limited together. */
function apiOf(path: string): string {
  return path
    .replace(/^\/open-apis/, "")
    .replaceAll(/\/(?:(?:om|oc|ou|on|omt|img|file|cli)_[\w-]+|\d{6,}|ZCa[\w-]+)/g, "/:id")
    .replaceAll(/\/(elements|reactions|images|files|resources|users)\/[\w-]+/g, "/$1/:id");
}
