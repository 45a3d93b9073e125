import type { ChatView, PlaygroundEvent, PlaygroundState, SimMessage } from "../routes.ts";

const keptEntries = 200;

/** The page's copy of the playground, kept up to date by the event stream. */
export interface Store {
  readonly state: PlaygroundState;
  /** Whether the event stream is open. */
  readonly online: boolean;
  message(messageId: string): SimMessage | undefined;
  nameOf(id: string): string;
  isBot(id: string): boolean;
  /** Called after each change with its event; undefined when only `online` changed. */
  onChange(listener: (event: PlaygroundEvent | undefined) => void): void;
}

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

/** The playground's own store, fed by its event stream. */
export function connectStore(path: string): Store {
  const { store, apply, setOnline } = createStore(nothing);
  const source = new EventSource(path);
  source.addEventListener("open", () => setOnline(true));
  source.addEventListener("error", () => setOnline(false));
  source.addEventListener("message", ({ data }: MessageEvent<string>) => {
    apply(JSON.parse(data) as PlaygroundEvent); // Our own server writes it.
  });
  return store;
}

/** A store that holds still until something is applied to it. */
interface FedStore {
  store: Store;
  apply(event: PlaygroundEvent): void;
  setOnline(online: boolean): void;
}

export function createStore(first: PlaygroundState): FedStore {
  const listeners: ((event: PlaygroundEvent | undefined) => void)[] = [];
  const messages = new Map(first.messages.map((message) => [message.messageId, message]));
  let state = first;
  let online: boolean | undefined;
  const tell = (event: PlaygroundEvent | undefined): void => {
    for (const listener of listeners) listener(event);
  };
  const store: Store = {
    get state() {
      return state;
    },
    get online() {
      return online === true;
    },
    message: (messageId) => messages.get(messageId),
    nameOf: (id) =>
      state.people.find((person) => person.openId === id)?.name ??
      state.apps.find((app) => app.appId === id || app.openId === id)?.name ??
      id,
    isBot: (id) => state.apps.some((app) => app.appId === id),
    onChange: (listener) => void listeners.push(listener),
  };
  return {
    store,
    apply(event) {
      if (event.type === "state") messages.clear();
      state = reduce(state, event);
      const changed = event.type === "state" ? event.state.messages : event.type === "message" ? [event.message] : [];
      for (const message of changed) messages.set(message.messageId, message);
      tell(event);
    },
    setOnline(value) {
      if (online === value) return;
      online = value;
      tell(undefined);
    },
  };
}

function reduce(state: PlaygroundState, event: PlaygroundEvent): PlaygroundState {
  switch (event.type) {
    case "state":
      return event.state;
    case "message":
      return { ...state, messages: [...withoutMessage(state, event.message.messageId), event.message] };
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

function withoutMessage(state: PlaygroundState, messageId: string): SimMessage[] {
  return state.messages.filter((message) => message.messageId !== messageId).slice(-1000);
}

/** The latest message that a person wrote. */
export function lastWritten(state: PlaygroundState): SimMessage | undefined {
  return state.messages
    .filter((message) => message.senderType === "user")
    .toSorted(byTime)
    .at(-1);
}

export function byTime(left: SimMessage, right: SimMessage): number {
  return left.createdAt - right.createdAt;
}

/** What a chat is called. */
export function chatTitle(chat: ChatView, store: Store): string {
  return chat.name === "" ? chat.members.map((member) => store.nameOf(member)).join(", ") : chat.name;
}

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
  const reason = typeof answer === "object" && answer !== null && "error" in answer ? answer.error : response.status;
  throw new Error(String(reason));
}

/** What the playground tells about something; undefined when it does not know it or cannot be reached. */
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
    reader.addEventListener("error", () => reject(reader.error ?? new Error("The file cannot be read")));
    reader.readAsDataURL(file);
  });
  return url.slice(url.indexOf(",") + 1);
}
