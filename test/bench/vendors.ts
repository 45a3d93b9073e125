import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";

/** One message on its way, by the clock of the bench process, which plays sender, platform and model. */
export interface Trip {
  /** Names the trip in the message's text, and the message at the platform. */
  messageId: string;
  sentMs: number;
  /** When the webhook was acknowledged; 0 until then. */
  ackedMs: number;
  /** How often the webhook was sent until then. */
  tries: number;
  /** Arrival of each model request, and when its answer had been handed to the network. */
  modelMs: { in: number; out: number }[];
  /** When the reply arrived; 0 until then. */
  repliedMs: number;
  /** Bytes of the newest model request. */
  requestBytes: number;
  /** Called once: with the reply, or with what was wrong about it. */
  ended: (problem?: Error) => void;
}

const tripMark = "@trip:";
const toolMark = ";tool";
const handOverMark = ";hand";
const helperMark = ";help";

/** What comes before the answer: a call of a tool, a hand-over to the agent `expert`, a call of a helper, or nothing. */
export type Before = "tool" | "hand-over" | "helper" | "nothing";

const marks: Readonly<Record<Before, string>> = {
  tool: toolMark,
  "hand-over": handOverMark,
  helper: helperMark,
  nothing: ";",
};

/**
 * What a person writes: names the trip, and wants something before the answer or nothing. It has words, as messages have:
 * without any, the language of the answer would be looked up.
 */
export function textOf(messageId: string, before: Before): string {
  return `please answer ${tripMark}${messageId}${marks[before]}`;
}

interface Frame {
  type: string;
  [field: string]: unknown;
}

function frames(...values: readonly Frame[]): string {
  return values.map((value) => `event: ${value.type}\ndata: ${JSON.stringify(value)}\n\n`).join("");
}

const usage = { input_tokens: 50, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 };
const answerText = "done";

const startFrame: Frame = {
  type: "message_start",
  message: {
    id: "msg_bench",
    type: "message",
    role: "assistant",
    model: "claude-sonnet-4-6",
    content: [],
    stop_reason: null,
    usage: { ...usage, output_tokens: 1 },
  },
};

function endFrames(stopReason: string): Frame[] {
  return [
    { type: "content_block_stop", index: 0 },
    {
      type: "message_delta",
      delta: { stop_reason: stopReason, stop_sequence: null },
      usage: { ...usage, output_tokens: 40 },
    },
    { type: "message_stop" },
  ];
}

/** The stream of an answer, as the vendor writes it. */
const answerStream = frames(
  startFrame,
  { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
  { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: answerText } },
  ...endFrames("end_turn"),
);

const callIdPlace = "toolu_place";
/** Where a task names the trip of its asker, which its helper's request belongs to as well. */
const tripPlace = "om_place";

/** The stream of a call, before and after its id, which must be new each time. */
function callStream(name: string, argumentPieces: readonly string[]): string[] {
  return frames(
    startFrame,
    {
      type: "content_block_start",
      index: 0,
      content_block: { type: "tool_use", id: callIdPlace, name, input: {} },
    },
    ...argumentPieces.map((piece) => ({
      type: "content_block_delta",
      index: 0,
      delta: { type: "input_json_delta", partial_json: piece },
    })),
    ...endFrames("tool_use"),
  ).split(callIdPlace);
}

const callStreams = [
  { mark: toolMark, stream: callStream("note_pure", ["", '{"key":', '"x"}']) },
  { mark: handOverMark, stream: callStream("transfer_to_expert", ["", '{"reason":', '"x"}']) },
  {
    mark: helperMark,
    stream: callStream("ask_helper", ["", '{"task":', `"please answer ${tripMark}${tripPlace};"}`]),
  },
];

const ping = frames({ type: "ping" });

const streamHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache",
};

/** What the platform answers, by the end of the path. */
const platformAnswers: readonly [path: string, answer: object][] = [
  ["/auth/v3/tenant_access_token/internal", { tenant_access_token: "t-bench", expire: 7_200 }],
  ["/bot/v3/info", { bot: { open_id: "ou_bot", app_name: "Larkline", activate_status: 2 } }],
];

/**
 * The model and the platform of the bench in one HTTP server with ready answers: it checks nothing and parses no JSON,
 * because its CPU is taken from the subject. A message with `;tool` in its text gets one call of `note_pure` before the answer, one with `;hand` a hand-over, one with `;help` a helper.
 */
export class BenchVendors {
  /** How long the model takes to answer. */
  modelMs = 0;
  /** Requests that the model has had. */
  modelCalls = 0;
  readonly url: string;
  readonly #server: Server;
  readonly #trips = new Map<string, Trip>();
  /** Trips whose reply shows a card, by its id; undefined: no reply shows it yet, and it has the answer already. */
  readonly #cards = new Map<string, Trip | undefined>();
  #calls = 0;
  #replies = 0;
  #cardCount = 0;

  static async start(): Promise<BenchVendors> {
    const server = createServer({ keepAliveTimeout: 600_000 });
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(0, "127.0.0.1", resolve);
    });
    return new BenchVendors(server);
  }

  private constructor(server: Server) {
    const address = server.address();
    this.url = `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`;
    this.#server = server;
    server.on("request", (request: IncomingMessage, response: ServerResponse) =>
      this.#read(request, response),
    );
  }

  /** From now on the trip is followed, until its reply. */
  follow(trip: Trip): void {
    this.#trips.set(trip.messageId, trip);
  }

  /** Forgets a trip whose reply is waited for no more. */
  forget({ messageId }: Trip): void {
    this.#trips.delete(messageId);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #read(request: IncomingMessage, response: ServerResponse): void {
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      const [first = Buffer.alloc(0)] = pieces;
      const body = pieces.length <= 1 ? first : Buffer.concat(pieces);
      const path = request.url ?? "";
      if (path.startsWith("/v1/messages")) this.#answerAsModel(body, response);
      else this.#answerAsPlatform(path, body, response);
    });
  }

  #answerAsModel(body: Buffer, response: ServerResponse): void {
    const now = performance.now();
    this.modelCalls += 1;
    const markAt = body.lastIndexOf(tripMark);
    const endAt = body.indexOf(";", markAt);
    const messageId = body.toString("latin1", markAt + tripMark.length, endAt);
    const trip = this.#trips.get(messageId);
    const step = { in: now, out: now };
    trip?.modelMs.push(step);
    if (trip !== undefined) trip.requestBytes = body.length;
    const wanted = body.toString("latin1", endAt, endAt + toolMark.length);
    const call = callStreams.find(({ mark }) => mark === wanted);
    const isOpen = call !== undefined && !body.includes('"tool_result"', endAt);
    const stream = isOpen
      ? call.stream.join(`toolu_${(this.#calls += 1)}`).replace(tripPlace, messageId)
      : answerStream;
    const send = (): void => {
      if (!response.headersSent) response.writeHead(200, streamHeaders);
      response.end(stream);
      step.out = performance.now();
    };
    if (this.modelMs > 0) this.#think(response, send);
    else send();
  }

  /** Says once a second that it is at work, as the vendor does. */
  #think(response: ServerResponse, send: () => void): void {
    const pings = setInterval(() => {
      if (!response.headersSent) response.writeHead(200, streamHeaders);
      response.write(ping);
    }, 1_000);
    setTimeout(() => {
      clearInterval(pings);
      send();
    }, this.modelMs);
  }

  #answerAsPlatform(path: string, body: Buffer, response: ServerResponse): void {
    const [, messageId] = /\/messages\/([^/?]+)\/reply/.exec(path) ?? [];
    const [, cards, cardId] = /\/cardkit\/v1\/(cards)\/?([^/?]*)/.exec(path) ?? [];
    if (cards !== undefined) return this.#answerAsCards(cardId, body, response);
    if (messageId === undefined) {
      const [, answer = { data: {} }] = platformAnswers.find(([end]) => path.endsWith(end)) ?? [];
      return sendJson(response, JSON.stringify({ code: 0, msg: "success", ...answer }));
    }
    const trip = this.#trips.get(messageId);
    this.#trips.delete(messageId);
    const [shown] = /card_bench_\d+/.exec(body.toString("latin1")) ?? [];
    if (shown !== undefined && trip !== undefined && !this.#cards.delete(shown)) {
      this.#cards.set(shown, trip);
    } else if (trip !== undefined) {
      const isAnswer = shown !== undefined || body.includes(answerText);
      endTrip(trip, isAnswer ? undefined : new Error(`not the model's answer: ${body.toString()}`));
    }
    this.#replies += 1;
    const reply = `{"message_id":"om_reply_${this.#replies}","chat_id":"oc_bench","msg_type":"text"}`;
    sendJson(response, `{"code":0,"msg":"success","data":${reply}}`);
  }

  /** A card is created, or one that a reply shows is changed: the answer may be in either. */
  #answerAsCards(cardId: string | undefined, body: Buffer, response: ServerResponse): void {
    const hasAnswer = body.includes(answerText);
    if (cardId !== undefined && cardId !== "") {
      const trip = this.#cards.get(cardId);
      if (hasAnswer && trip !== undefined && this.#cards.delete(cardId)) endTrip(trip);
      return sendJson(response, '{"code":0,"msg":"success","data":{}}');
    }
    const created = `card_bench_${(this.#cardCount += 1)}`;
    if (hasAnswer) this.#cards.set(created, undefined);
    sendJson(response, `{"code":0,"msg":"success","data":{"card_id":"${created}"}}`);
  }
}

function endTrip(trip: Trip, error?: Error): void {
  trip.repliedMs = performance.now();
  trip.ended(error);
}

function sendJson(response: ServerResponse, text: string): void {
  response.writeHead(200, {
    "content-type": "application/json; charset=utf-8",
    "content-length": Buffer.byteLength(text),
  });
  response.end(text);
}
