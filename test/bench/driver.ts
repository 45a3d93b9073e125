import { randomBytes } from "node:crypto";
import { setMaxListeners } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { encryptEvent, signEvent } from "@larkline/simulator";
import type { Before, BenchVendors, Trip } from "./vendors.ts";
import { textOf } from "./vendors.ts";

/** Where the messages of a subject go, and how they are signed. */
export interface Recipient {
  /** Of the ingress; the path of webhooks is added. */
  url: string;
  appId: string;
  encryptKey: string;
  verificationToken: string;
}

/** A webhook that is ready to be written to a socket: encrypted, signed, with the head of its request. */
export interface Webhook {
  messageId: string;
  bytes: Buffer;
}

const run = randomBytes(4).toString("hex");
let count = 0;

/** A name that no other chat or message of this run has. */
function freshName(): string {
  count += 1;
  return `${run}${String(count).padStart(8, "0")}`;
}

export interface Chat {
  chatId: string;
  openId: string;
}

/** A person with a chat of their own. */
export function freshChat(): Chat {
  const name = freshName();
  return { chatId: `oc_${name}`, openId: `ou_${name}` };
}

/** These chats one after the other, again and again: people who return. */
export function returningChats(people: number): () => Chat {
  const chats = Array.from({ length: people }, freshChat);
  let next = 0;
  return () => chats[next++ % people] ?? freshChat();
}

/** The event of a message, as the platform sends it (im.message.receive_v1), as the bytes of one request. */
export function webhookOf(to: Recipient, { chatId, openId }: Chat, before: Before): Webhook {
  const messageId = `om_${freshName()}`;
  const createdAt = String(Date.now());
  const header = {
    event_id: `ev_${messageId}`,
    event_type: "im.message.receive_v1",
    create_time: createdAt,
    token: to.verificationToken,
    app_id: to.appId,
    tenant_key: "bench",
  };
  const event = {
    sender: {
      sender_id: { union_id: `on_${openId}`, user_id: openId.slice(3), open_id: openId },
      sender_type: "user",
      tenant_key: "bench",
    },
    message: {
      message_id: messageId,
      create_time: createdAt,
      update_time: createdAt,
      chat_id: chatId,
      chat_type: "p2p",
      message_type: "text",
      content: JSON.stringify({ text: textOf(messageId, before) }),
    },
  };
  const plain = JSON.stringify({ schema: "2.0", header, event });
  const body = JSON.stringify({ encrypt: encryptEvent(to.encryptKey, plain) });
  const signed = {
    timestamp: String(Math.floor(Date.now() / 1_000)),
    nonce: messageId,
    encryptKey: to.encryptKey,
  };
  const head = [
    "POST /feishu/events HTTP/1.1",
    `Host: ${new URL(to.url).host}`,
    "Content-Type: application/json; charset=utf-8",
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Lark-Request-Timestamp: ${signed.timestamp}`,
    `X-Lark-Request-Nonce: ${signed.nonce}`,
    `X-Lark-Signature: ${signEvent({ ...signed, body })}`,
  ].join("\r\n");
  return { messageId, bytes: Buffer.from(`${head}\r\n\r\n${body}`) };
}

/** A server may close a connection that was idle for 5 s (Node's default), so it is not used any more before that. */
const idleMs = 3_000;
/** The platform waits this long for an acknowledgement. */
const ackTimeoutMs = 3_000;

interface Line {
  socket: Socket;
  received: string;
  /** 0 until it is free for the first time. */
  freeSinceMs: number;
  /** No answer came in time. */
  late: boolean;
  /** Called once with the status, 0 where there is none. */
  answered: ((status: number) => void) | undefined;
}

/** The status of the answer, 0 where there is none. */
async function exchange(line: Line, bytes: Buffer): Promise<number> {
  return await new Promise<number>((resolve) => {
    const timer = setTimeout(() => {
      line.late = true;
      line.socket.destroy();
    }, ackTimeoutMs);
    line.answered = (status) => {
      clearTimeout(timer);
      resolve(status);
    };
    line.socket.write(bytes);
  });
}

/** Writes webhooks to kept connections; a client of its own, because one of node:http costs several times as much. */
export class WebhookSender {
  readonly #host: string;
  readonly #port: number;
  /** Connections without a request, the newest last. */
  #free: Line[] = [];
  readonly #all = new Set<Line>();

  constructor(url: string) {
    const { hostname, port } = new URL(url);
    this.#host = hostname;
    this.#port = Number(port);
  }

  /** The status of the answer; 0 when there was none in time. */
  async send(bytes: Buffer): Promise<number> {
    const line = this.#take();
    const reused = line.freeSinceMs > 0;
    const status = await exchange(line, bytes);
    // A server that closed an idle connection has not read the request.
    return status === 0 && reused && !line.late ? await exchange(this.#open(), bytes) : status;
  }

  close(): void {
    for (const { socket } of this.#all) socket.destroy();
  }

  #take(): Line {
    const newest = this.#free.pop();
    if (newest !== undefined && performance.now() - newest.freeSinceMs < idleMs) return newest;
    for (const { socket } of [newest, ...this.#free].flatMap((line) => line ?? [])) {
      socket.destroy();
    }
    this.#free = [];
    return this.#open();
  }

  #open(): Line {
    const socket = connect({ host: this.#host, port: this.#port, noDelay: true });
    const line: Line = { socket, received: "", freeSinceMs: 0, late: false, answered: undefined };
    socket.setEncoding("latin1");
    socket.on("data", (text: string) => this.#receive(line, text));
    socket.on("error", () => undefined); // `close` follows
    socket.on("close", () => {
      this.#all.delete(line);
      this.#free = this.#free.filter((free) => free !== line);
      line.answered?.(0);
    });
    this.#all.add(line);
    return line;
  }

  #receive(line: Line, text: string): void {
    line.received += text;
    const headEnd = line.received.indexOf("\r\n\r\n");
    if (headEnd < 0) return;
    const length = /\r\ncontent-length: (\d+)/i.exec(line.received)?.[1];
    if (length === undefined) throw new Error("an acknowledgement must tell its length");
    if (line.received.length < headEnd + 4 + Number(length)) return;
    const status = Number(line.received.slice(9, 12));
    const { answered } = line;
    line.received = "";
    line.answered = undefined;
    line.freeSinceMs = performance.now();
    this.#free.push(line);
    answered?.(status);
  }
}

export interface LoadOptions {
  vendors: BenchVendors;
  sender: WebhookSender;
  recipient: Recipient;
  /** Messages waiting for an answer at any moment, each in a chat of its own. */
  inFlight: number;
  messages: number;
  /** Messages of one chat before a new one is used: keeps conversations short. */
  perChat: number;
  /** What each turn does before its answer; default: it calls a tool. */
  before?: Before;
  /** The next chat to write in; default: a fresh one. */
  nextChat?: () => Chat;
}

export interface LoadResult {
  trips: Trip[];
  seconds: number;
  /** CPU that the bench itself used meanwhile. */
  harnessMs: number;
}

const answerTimeoutMs = 60_000;

/** The platform repeats an event that was not acknowledged. */
const repeatAfterMs = 1_000;

/** A message on its way: the trip, and what settles with its acknowledgement and its reply. */
export interface Talk {
  trip: Trip;
  /** Resolves without an acknowledgement, too, when there was none for long. */
  acknowledged: Promise<void>;
  replied: Promise<void>;
}

/** Sends a message until it is acknowledged, and follows it until its reply. */
export function talk(
  vendors: BenchVendors,
  sender: WebhookSender,
  { messageId, bytes }: Webhook,
): Talk {
  const { promise: replied, resolve, reject } = Promise.withResolvers<void>();
  const trip: Trip = {
    messageId,
    sentMs: performance.now(),
    ackedMs: 0,
    tries: 0,
    modelMs: [],
    repliedMs: 0,
    requestBytes: 0,
    ended: (problem) => (problem === undefined ? resolve() : reject(problem)),
  };
  vendors.follow(trip);
  const acknowledge = async (): Promise<void> => {
    while (performance.now() - trip.sentMs < answerTimeoutMs) {
      trip.tries += 1;
      if ((await sender.send(bytes)) === 200) {
        trip.ackedMs = performance.now();
        return;
      }
      await delay(repeatAfterMs);
    }
  };
  return { trip, acknowledged: acknowledge(), replied };
}

async function untilReplied({ vendors, sender }: LoadOptions, webhook: Webhook): Promise<Trip> {
  const { trip, acknowledged, replied } = talk(vendors, sender, webhook);
  const late = setTimeout(() => {
    trip.ended(new Error(`no answer to ${trip.messageId} within ${answerTimeoutMs / 1_000} s`));
  }, answerTimeoutMs);
  await Promise.all([acknowledged, replied]); // the reply may come first
  clearTimeout(late);
  return trip;
}

/** Messages of one chat after the other; all are signed before the clock starts. */
function conversations({
  recipient,
  messages,
  perChat,
  before = "tool",
  nextChat = freshChat,
}: LoadOptions): Webhook[][] {
  const all: Webhook[][] = [];
  for (let left = messages; left > 0; left -= perChat) {
    const place = nextChat();
    all.push(
      Array.from({ length: Math.min(left, perChat) }, () => webhookOf(recipient, place, before)),
    );
  }
  return all;
}

/** Keeps `inFlight` messages on their way until `messages` are answered. */
export async function load(options: LoadOptions): Promise<LoadResult> {
  setMaxListeners(0);
  const waiting = conversations(options).toReversed();
  const trips: Trip[] = [];
  const lane = async (): Promise<void> => {
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      for (const webhook of next) trips.push(await untilReplied(options, webhook));
    }
  };
  const startedMs = performance.now();
  const cpu = process.cpuUsage();
  await Promise.all(Array.from({ length: options.inFlight }, lane));
  const { user, system } = process.cpuUsage(cpu);
  return {
    trips,
    seconds: (performance.now() - startedMs) / 1_000,
    harnessMs: (user + system) / 1_000,
  };
}
