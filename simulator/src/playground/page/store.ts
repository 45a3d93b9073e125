import type { ApiCall, ChatView, PlaygroundEvent, PlaygroundState, SimMessage } from "../routes.ts";

const keptEntries = 200;
const keptMessages = 1000;

const nothing: PlaygroundState = {
  apps: [],
  people: [],
  chats: [],
  messages: [],
  calls: [],
  deliveries: [],
  refusals: [],
  monthCalls: 0,
  faults: 0,
};

/** The page's copy of the playground, kept up to date by the event stream. */
export class Store {
  state = nothing;
  /** Whether the event stream is open; undefined before it was, or could not be. */
  online: boolean | undefined;
  /** Whether the bot has had a long connection since the page was opened. */
  hasConnected = false;
  readonly #messages = new Map<string, SimMessage>();
  readonly #listeners = new Set<(event: PlaygroundEvent | undefined) => void>();

  /** Follows the event stream at a path. */
  connect(path: string): void {
    const source = new EventSource(path);
    const setOnline = (online: boolean): void => {
      if (this.online === online) return;
      this.online = online;
      this.#tell(undefined);
    };
    source.addEventListener("open", () => setOnline(true));
    source.addEventListener("error", () => setOnline(false));
    source.addEventListener("message", ({ data }: MessageEvent<string>) => {
      this.#apply(JSON.parse(data) as PlaygroundEvent); // Our own server writes it.
    });
  }

  #apply(event: PlaygroundEvent): void {
    if (event.type === "state") this.#messages.clear();
    this.state = reduce(this.state, event);
    const changed =
      event.type === "state"
        ? event.state.messages
        : event.type === "message"
          ? [event.message]
          : [];
    for (const message of changed) this.#messages.set(message.messageId, message);
    this.hasConnected ||= this.state.apps.some(({ connections }) => connections > 0);
    this.#tell(event);
  }

  /** Called after each change with its event; undefined when only `online` changed. Returns what ends that. */
  onChange(listener: (event: PlaygroundEvent | undefined) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  message(messageId: string | undefined): SimMessage | undefined {
    return messageId === undefined ? undefined : this.#messages.get(messageId);
  }

  nameOf(id: string): string {
    return (
      this.state.people.find((person) => person.openId === id)?.name ??
      this.state.apps.find((app) => app.appId === id || app.openId === id)?.name ??
      id
    );
  }

  isBot(id: string): boolean {
    return this.state.apps.some((app) => app.appId === id);
  }

  /** What a chat is called. */
  titleOf({ name, members }: ChatView): string {
    return name === "" ? members.map((member) => this.nameOf(member)).join(", ") : name;
  }

  /** The latest message that a person wrote. */
  lastWritten(): SimMessage | undefined {
    return this.state.messages
      .filter((message) => message.senderType === "user")
      .toSorted(byTime)
      .at(-1);
  }

  #tell(event: PlaygroundEvent | undefined): void {
    for (const listener of this.#listeners) listener(event);
  }
}

function reduce(state: PlaygroundState, event: PlaygroundEvent): PlaygroundState {
  switch (event.type) {
    case "state":
      return { ...event.state, messages: event.state.messages.toSorted(byTime) };
    case "message":
      return { ...state, messages: withMessage(state.messages, event.message) };
    case "call":
      return {
        ...state,
        calls: [...state.calls, event.call].slice(-keptEntries),
        faults: event.faults,
        monthCalls: event.monthCalls,
      };
    case "refusal":
      return { ...state, refusals: [...state.refusals, event.refusal].slice(-keptEntries) };
    case "delivery":
      return { ...state, deliveries: [...state.deliveries, event.delivery].slice(-keptEntries) };
    case "apps":
      return { ...state, apps: event.apps };
    case "person":
      return { ...state, people: [...state.people, event.person] };
    case "chat":
      return { ...state, chats: [...state.chats, event.chat] };
    case "faults":
      return { ...state, faults: event.faults };
    default:
      return state;
  }
}

/** Messages are in the order of their arrival, whatever time they say. */
function withMessage(messages: readonly SimMessage[], message: SimMessage): SimMessage[] {
  const at = messages.findIndex(({ messageId }) => messageId === message.messageId);
  return at === -1 ? [...messages, message].slice(-keptMessages) : messages.with(at, message);
}

export function byTime(left: SimMessage, right: SimMessage): number {
  return left.createdAt - right.createdAt;
}

/* ---- Calls of the last minute ---- */

/** How much an API was called lately. */
interface ApiUsage {
  api: string;
  lastSecond: number;
  lastMinute: number;
}

const windowMs = 60_000;

/** Calls of the last minute, counted as the platform does: by API and by card. */
export class Usage {
  #calls: { api: string; cardId: string | undefined; at: number }[] = [];

  count({ method, path, at }: ApiCall): void {
    const cardId = /^\/open-apis\/cardkit\/v1\/cards\/(\d+)/.exec(path)?.[1];
    this.#calls.push({ api: `${method} ${apiOf(path)}`, cardId, at });
  }

  /** The APIs of the last minute, most called first. */
  rows(now: number): ApiUsage[] {
    this.#calls = this.#calls.filter(({ at }) => now - at < windowMs);
    const rows = new Map<string, ApiUsage>();
    for (const { api, at } of this.#calls) {
      const row = rows.get(api) ?? { api, lastSecond: 0, lastMinute: 0 };
      row.lastMinute += 1;
      if (now - at < 1000) row.lastSecond += 1;
      rows.set(api, row);
    }
    return [...rows.values()].toSorted((left, right) => right.lastMinute - left.lastMinute);
  }

  /** Operations on a card in the last second. */
  onCard(cardId: string, now: number): number {
    return this.#calls.filter((call) => call.cardId === cardId && now - call.at < 1000).length;
  }
}

/** The path with ids as `:id`: what is limited together. */
function apiOf(path: string): string {
  return path
    .replace(/^\/open-apis/, "")
    .replaceAll(/\/(?:(?:om|oc|ou|on|omt|img|file|cli)_[\w-]+|\d{6,}|ZCa[\w-]+)/g, "/:id")
    .replaceAll(/\/(elements|reactions|images|files|resources|users)\/[\w-]+/g, "/$1/:id");
}

/* ---- The playground's API ---- */

/** Posts to the playground's API; a refusal rejects with its reason. Resolves to the answer. */
export async function post(path: string, body: object = {}): Promise<unknown> {
  const response = await fetch(`/api/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(30_000),
  });
  const answer: unknown = await response.json().catch(() => undefined);
  if (response.ok) return answer;
  const reason =
    typeof answer === "object" && answer !== null && "error" in answer
      ? answer.error
      : response.status;
  throw new Error(String(reason));
}

/** What the playground knows about something; undefined when it does not know it or cannot be reached. */
export async function get(path: string): Promise<unknown> {
  try {
    const response = await fetch(path, { signal: AbortSignal.timeout(10_000) });
    return response.ok ? await response.json() : undefined;
  } catch {
    return undefined;
  }
}

/** A file's bytes as base64. Rejects when it cannot be read. */
export async function base64Of(file: Blob): Promise<string> {
  const url = await new Promise<string>((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(String(reader.result)));
    reader.addEventListener("error", () =>
      reject(reader.error ?? new Error("The file cannot be read")),
    );
    reader.readAsDataURL(file);
  });
  return url.slice(url.indexOf(",") + 1);
}
