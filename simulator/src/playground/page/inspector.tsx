import type { ComponentChildren, TargetedEvent, VNode } from "preact";
import { useEffect, useState } from "preact/hooks";
import type {
  ApiCall,
  CardFacts,
  DeliveryRecord,
  LimitRefusal,
  SimCardView,
  SimMessage,
} from "../routes.ts";
import { cardSize, isPart } from "./card-part.ts";
import { byTime, get, type Store, type Usage } from "./store.ts";
import type { Words } from "./words.ts";

interface InspectorProps {
  store: Store;
  words: Words;
  usage: Usage;
  act: (path: string, body?: object) => Promise<boolean>;
}

const tabIds = ["activity", "limits", "faults"] as const;
type TabId = (typeof tabIds)[number];

const panels: Readonly<Record<TabId, { shape: string; show: (props: InspectorProps) => VNode }>> = {
  activity: { shape: "activity", show: (props) => <Activity {...props} /> },
  limits: { shape: "limits", show: (props) => <Limits {...props} /> },
  faults: { shape: "box", show: (props) => <Faults {...props} /> },
};

/** What the platform received and delivered, how near the bot is to each limit, and the switches for faults. */
export function Inspector(props: InspectorProps): VNode {
  const { words } = props;
  const [tab, setTab] = useState<TabId>(
    () => tabIds.find((id) => id === sessionStorage.getItem("tab")) ?? "activity",
  );
  const open = (id: TabId): void => {
    setTab(id);
    // Kept for the next visit.
    sessionStorage.setItem("tab", id);
  };
  return (
    <aside class="side" aria-label={words.inspector}>
      <h2>{words.inspector}</h2>
      <div class="strip">
        <Strip {...props} />
        <button
          type="button"
          class="strip-open"
          aria-label={words.limits}
          onClick={() => open("limits")}
        >
          {words.limits}
        </button>
      </div>
      <div class="tabbed">
        <div class="tabs" role="tablist" aria-label={words.inspector} onKeyDown={moveInTabs}>
          {tabIds.map((id) => (
            <button
              type="button"
              role="tab"
              id={`tab-${id}`}
              aria-selected={id === tab}
              tabIndex={id === tab ? 0 : -1}
              onClick={() => open(id)}
            >
              {words[id]}
            </button>
          ))}
        </div>
        {tabIds.map((id) => (
          <div
            class={panels[id].shape}
            key={id}
            role="tabpanel"
            tabIndex={0}
            aria-labelledby={`tab-${id}`}
            hidden={id !== tab}
          >
            {id === tab && panels[id].show(props)}
          </div>
        ))}
      </div>
    </aside>
  );
}

/** The keys of tabs: arrows move. */
function moveInTabs(event: TargetedEvent<HTMLElement, KeyboardEvent>): void {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step === undefined) return;
  const heads = [...event.currentTarget.querySelectorAll<HTMLElement>('[role="tab"]')];
  const at = heads.findIndex((head) => head === document.activeElement);
  const next = heads[(at + step + heads.length) % heads.length];
  event.preventDefault();
  next?.focus();
  next?.click();
}

/* ---- What the platform received and delivered ---- */

const shownRows = 100;

function Activity({ store, words }: InspectorProps): VNode {
  const { calls, deliveries } = store.state;
  return (
    <>
      <Log title={words.deliveries} empty={words.noDeliveries}>
        {latest(deliveries, shownRows).map((delivery) => deliveryRow(delivery, { store, words }))}
      </Log>
      <Log title={words.calls} empty={words.noCalls}>
        {latest(calls, shownRows).map((call) => callRow(call, words))}
      </Log>
    </>
  );
}

/** The last entries, the newest first. */
function latest<Entry>(entries: readonly Entry[], count: number): Entry[] {
  return entries.slice(-count).toReversed();
}

function Log({
  title,
  empty,
  children,
}: {
  title: string;
  empty: string;
  children: readonly VNode[];
}): VNode {
  return (
    <section class="box">
      <h3>{title}</h3>
      {children.length === 0 && <p class="empty">{empty}</p>}
      <ol class="log" tabIndex={0} aria-label={title}>
        {children}
      </ol>
    </section>
  );
}

const keys = new WeakMap<object, number>();
let lastKey = 0;

/** By what an entry is found again when others come before it. */
function keyOf(entry: object): number {
  const key = keys.get(entry) ?? (lastKey += 1);
  keys.set(entry, key);
  return key;
}

function logRow(
  good: boolean,
  { key, title, facts }: { key: number; title: string; facts: ComponentChildren },
): VNode {
  return (
    <li class={good ? "good" : "bad"} key={key}>
      <span class="dot" aria-hidden="true" />
      <div>
        <code title={title}>{title}</code>
        <div class="facts">{facts}</div>
      </div>
    </li>
  );
}

function callRow(call: ApiCall, words: Words): VNode {
  const short = call.path
    .replace(/^\/open-apis/, "")
    .replaceAll(/(o[mcu]_)[0-9a-f]+([0-9a-f]{4})/g, "$1…$2")
    .replaceAll(/\d{12,}(\d{4})/g, "…$1");
  const facts = (
    <>
      <span>{call.status === 0 ? words.noAnswer : `HTTP ${call.status}`}</span>
      {call.status !== 0 && <span>{`code ${call.code}`}</span>}
      <span>{`${call.durationMs} ms`}</span>
      {clock(call.at)}
    </>
  );
  const good = call.status === 200 && call.code === 0;
  return logRow(good, { key: keyOf(call), title: `${call.method} ${short}`, facts });
}

function deliveryRow(
  delivery: DeliveryRecord,
  { store, words }: Pick<InspectorProps, "store" | "words">,
): VNode {
  const written = store.message(delivery.messageId);
  const about = written === undefined ? "" : `“${written.text.slice(0, 40)}”`;
  const facts = (
    <>
      <span>{words[delivery.transport]}</span>
      <span>{words.attempt.replace("{n}", String(delivery.attempt))}</span>
      <span>
        {delivery.acknowledged ? words.acknowledged : `${words.failed}: ${delivery.error ?? ""}`}
      </span>
      <span>{`${delivery.durationMs} ms`}</span>
      {clock(delivery.at)}
    </>
  );
  return logRow(delivery.acknowledged, {
    key: keyOf(delivery),
    title: `${delivery.eventType} ${about}`,
    facts,
  });
}

function clock(at: number): VNode {
  const time = new Date(at);
  return (
    <time dateTime={time.toISOString()}>{time.toLocaleTimeString([], { hour12: false })}</time>
  );
}

/* ---- Limits ---- */

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

/** A line that is always to be seen. */
function Strip({ store, words, usage }: InspectorProps): VNode {
  useTicks();
  const rows = usage.rows(Date.now());
  const second = Math.max(0, ...rows.map(({ lastSecond }) => lastSecond));
  const minute = Math.max(0, ...rows.map(({ lastMinute }) => lastMinute));
  const refused = store.state.refusals.length;
  return (
    <dl class="strip-facts">
      {fact(words.perSecond, `${second}/${limits.perSecond}`, second >= limits.perSecond * 0.8)}
      {fact(words.perMinute, `${minute}/${limits.perMinute}`, minute >= limits.perMinute * 0.8)}
      {fact(
        words.thisMonth,
        String(store.state.monthCalls),
        store.state.monthCalls >= limits.month * 0.8,
      )}
      {fact(words.refused, String(refused), refused > 0)}
    </dl>
  );
}

/** Draws a component again twice a second: what it shows is forgotten after a while. */
function useTicks(onTick: () => Promise<void> = async () => undefined): void {
  const [, draw] = useState(0);
  useEffect(() => {
    const timer = setInterval(
      () => void onTick().then(() => draw((ticks) => ticks + 1)),
      drawEveryMs,
    );
    return () => clearInterval(timer);
  }, []);
}

function fact(label: string, value: string, warns: boolean): VNode {
  return (
    <div class={warns ? "warns" : undefined}>
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
}

/** How near the bot is to each limit, and what was refused. */
function Limits({ store, words, usage }: InspectorProps): VNode {
  const [facts] = useState(() => new Map<string, CardFacts>());
  useTicks(async () => await readFacts(store, facts));
  const cards = latestCards(store);
  const rows = usage.rows(Date.now()).slice(0, shownApis);
  const refusals = latest(store.state.refusals, shownRefusals);
  return (
    <>
      {section(words.quota, meter(words.thisMonth, store.state.monthCalls, limits.month))}
      {section(
        words.cards,
        cards.length === 0 ? (
          <p class="empty">{words.noCards}</p>
        ) : (
          cards.map((message) => cardFacts(message, { words, usage, facts }))
        ),
      )}
      {section(
        words.apis,
        rows.length === 0 ? (
          <p class="empty">{words.quiet}</p>
        ) : (
          rows.map(({ api, lastSecond, lastMinute }) => (
            <div class="api" key={api}>
              <code title={api}>{api}</code>
              {meter(words.perSecond, lastSecond, limits.perSecond)}
              {meter(words.perMinute, lastMinute, limits.perMinute)}
            </div>
          ))
        ),
      )}
      {section(
        words.refusals,
        refusals.length === 0 ? (
          <p class="empty">{words.noRefusals}</p>
        ) : (
          <ol class="log refusals">{refusals.map((refusal) => refusalView(refusal, words))}</ol>
        ),
      )}
    </>
  );
}

async function readFacts(store: Store, facts: Map<string, CardFacts>): Promise<void> {
  const cards = latestCards(store).map(({ card }) => card.cardId);
  for (const cardId of cards) {
    const answer = await get(`/api/cards/${cardId}`);
    if (isPart(answer)) facts.set(cardId, answer as unknown as CardFacts); // Our own server writes it.
  }
  for (const known of facts.keys()) if (!cards.includes(known)) facts.delete(known);
}

/** A message with a card that has an id. */
type CardMessage = SimMessage & { card: SimCardView & { cardId: string } };

function latestCards(store: Store): CardMessage[] {
  const cards = store.state.messages.filter(
    (message): message is CardMessage => message.card?.cardId !== undefined,
  );
  return latest(cards.toSorted(byTime), shownCards);
}

function section(title: string, children: ComponentChildren): VNode {
  return (
    <section class="box" aria-label={title}>
      <h3>{title}</h3>
      {children}
    </section>
  );
}

/** A bar; the words beside it say the same. */
function meter(label: string, value: number, limit: number): VNode {
  const share = Math.min(100, (value / limit) * 100);
  const level = share >= 100 ? " full" : share >= 80 ? " near" : "";
  return (
    <div class={`meter${level}`}>
      <span class="meter-label">{label}</span>
      <span class="meter-value">{`${value.toLocaleString("en")} / ${limit.toLocaleString("en")}`}</span>
      <span class="meter-bar" aria-hidden="true">
        <span class="meter-fill" style={{ "--share": `${share.toFixed(1)}%` }} />
      </span>
    </div>
  );
}

interface CardFactsParts {
  words: Words;
  usage: Usage;
  facts: ReadonlyMap<string, CardFacts>;
}

function cardFacts(
  { messageId, card }: CardMessage,
  { words, usage, facts }: CardFactsParts,
): VNode {
  const { bytes, elements } = cardSize(card.json);
  const known = facts.get(card.cardId);
  return (
    <div class="card-facts" key={messageId}>
      <div class="row">
        <code>{`…${card.cardId.slice(-6)}`}</code>
        <span class={card.streaming ? "tag live" : "tag"}>
          {card.streaming ? words.streaming : words.still}
        </span>
      </div>
      <p class="facts">{known !== undefined && countsOf(known, words)}</p>
      {meter(words.cardPerSecond, usage.onCard(card.cardId, Date.now()), limits.cardPerSecond)}
      {meter(words.bytes, bytes, limits.cardBytes)}
      {meter(words.elements, elements, limits.cardElements)}
    </div>
  );
}

function countsOf(
  { sequence, frames, operations, latest: last }: CardFacts,
  words: Words,
): VNode[] {
  const refused = last.filter(({ code }) => code !== 0).length;
  const counts: [string, number][] = [
    [words.sequence, sequence],
    [words.frames, frames],
    [words.operations, operations],
    ...(refused === 0 ? [] : [[words.refused, refused] satisfies [string, number]]),
  ];
  return counts.map(([label, count]) => <span>{`${label} ${count}`}</span>);
}

function refusalView(refusal: LimitRefusal, words: Words): VNode {
  const { api, key, code, at } = refusal;
  const what = code === 99991400 ? words.gatewayLimit : words.businessLimit;
  return (
    <li class="bad" key={keyOf(refusal)}>
      <span class="dot" aria-hidden="true" />
      <div>
        <code title={`${api} ${key}`}>{api.replace(/ \/open-apis/, " ")}</code>
        <div class="facts">
          <span>{`${what} ${code}`}</span>
          <span>{key.length > 12 ? `${key.slice(0, 10)}…` : key}</span>
          <time>{new Date(at).toLocaleTimeString([], { hour12: false })}</time>
        </div>
      </div>
    </li>
  );
}

/* ---- Faults ---- */

const kinds = [
  ["failCalls", "error"],
  ["limitCalls", "limit"],
  ["slowCalls", "slow"],
  ["loseAnswers", "lost"],
] as const;
const transports = ["auto", "websocket", "webhook"] as const;

/** The switches for faults. */
function Faults({ store, words, act }: InspectorProps): VNode {
  const [times, setTimes] = useState("3");
  const { faults, apps } = store.state;
  const last = store.lastWritten();
  const button = (label: string, path: string, body: object = {}, disabled = false): VNode => (
    <button type="button" disabled={disabled} onClick={() => void act(path, body)}>
      {label}
    </button>
  );
  return (
    <>
      <h3>{words.faults}</h3>
      <div class="buttons">
        {button(
          words.redeliverLast,
          "redeliver",
          { messageId: last?.messageId },
          last === undefined,
        )}
        {button(words.dropConnection, "drop-connections")}
        {button(words.expireToken, "expire-tokens")}
      </div>
      <label class="row">
        {words.times}
        <input
          type="number"
          min="1"
          max="100"
          inputmode="numeric"
          value={times}
          onInput={({ currentTarget }) => setTimes(currentTarget.value)}
        />
      </label>
      <div class="buttons">
        {kinds.map(([word, kind]) => button(words[word], "faults", { kind, times: Number(times) }))}
      </div>
      <div class="row">
        <span class="armed" role="status">
          {faults > 0 && words.armed.replace("{n}", String(faults))}
        </span>
        {faults > 0 && button(words.clearFaults, "clear-faults")}
      </div>
      <label class="row">
        {words.transport}
        <select
          value={apps[0]?.transport ?? "auto"}
          onChange={({ currentTarget }) =>
            void act("transport", { transport: currentTarget.value })
          }
        >
          {transports.map((name) => (
            <option value={name}>{words[name]}</option>
          ))}
        </select>
      </label>
    </>
  );
}
