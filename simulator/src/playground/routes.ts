import type { ServerResponse } from "node:http";
import { type Parser, type ParseResult, parserOf } from "@larkline/protocol";
import { systemClock } from "@larkline/protocol/clock";
import { type Static, Type } from "@larkline/protocol/type";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type {
  ApiCall,
  AppConnection,
  CardClick,
  CardClickResult,
  DeliveryRecord,
  Fault,
  FeishuSimulator,
  LimitRefusal,
  PersonMessage,
  SimCard,
  SimCardOperation,
  SimCardView,
  SimMessage,
} from "../index.ts";

const Id = Type.String({ pattern: "^[A-Za-z0-9_-]{1,80}$" });
const Name = Type.String({ minLength: 1, maxLength: 60, pattern: "\\S" });

const parsePerson = parserOf(Type.Object({ name: Name }));
const parseChat = parserOf(
  Type.Object({
    type: Type.Union([Type.Literal("p2p"), Type.Literal("group")]),
    topic: Type.Optional(Type.Boolean()),
    name: Type.String({ maxLength: 60 }),
    members: Type.Array(Id, { minItems: 1, maxItems: 50, uniqueItems: true }),
  }),
);
const parseMessageId = parserOf(Type.Object({ messageId: Id }));
const parseTransport = parserOf(
  Type.Object({
    transport: Type.Union([
      Type.Literal("auto"),
      Type.Literal("webhook"),
      Type.Literal("websocket"),
    ]),
  }),
);
const parseFault = parserOf(
  Type.Object({
    kind: Type.Union([
      Type.Literal("error"),
      Type.Literal("limit"),
      Type.Literal("slow"),
      Type.Literal("lost"),
    ]),
    times: Type.Integer({ minimum: 1, maximum: 100 }),
  }),
);

interface RouteParts {
  simulator: FeishuSimulator;
  stream: EventStream;
  appId: string;
}

type Answer = object;

/** The JSON API of the page. Wrong input is 400 with the reason; ids that name nothing are 404. */
export function registerPlaygroundRoutes(
  fastify: FastifyInstance,
  { simulator, stream, appId }: RouteParts,
): void {
  const post = <Body>(
    path: string,
    parse: Parser<Body>,
    run: (body: Body) => Answer | Promise<Answer>,
  ): void => {
    fastify.post(path, async (request, reply) => answer(reply, { request, parse, run }));
  };
  fastify.get("/api/events", (_request, reply) => {
    if (!stream.open(reply.raw)) return reply.code(503).send({ error: "too many pages are open" });
    return reply.hijack();
  });
  post("/api/people", parsePerson, ({ name }) => ({
    openId: simulator.addUser({ name: name.trim() }).openId,
  }));
  post("/api/chats", parseChat, (chat) => {
    const { chatId } = simulator.addChat(chat);
    // The bots are in it from the start; they get the event of a group to which a person adds them.
    if (chat.type === "group") simulator.addBot(chatId, appId);
    return { chatId };
  });
  post("/api/redeliver", parseMessageId, async ({ messageId }) => ({
    report: await simulator.redeliver(messageId),
  }));
  post("/api/recall", parseMessageId, async ({ messageId }) => {
    await simulator.recall(messageId);
    return {};
  });
  post("/api/transport", parseTransport, ({ transport }) => {
    simulator.setTransport(appId, transport);
    stream.send({ type: "apps", apps: simulator.apps });
    return {};
  });
  post("/api/drop-connections", parserOf(Type.Object({})), () => {
    simulator.dropConnections();
    return {};
  });
  post("/api/expire-tokens", parserOf(Type.Object({})), () => {
    simulator.expireTokens();
    return {};
  });
  registerFaults(fastify, simulator, stream);
  registerPersonRoutes(fastify, { simulator, appId });
  registerCardRoutes(fastify, simulator);
}

function registerFaults(
  fastify: FastifyInstance,
  simulator: FeishuSimulator,
  stream: EventStream,
): void {
  const changed = (): Answer => {
    stream.send({ type: "faults", faults: simulator.faults.size });
    return {};
  };
  fastify.post("/api/faults", async (request, reply) =>
    answer(reply, {
      request,
      parse: parseFault,
      run({ kind, times }) {
        simulator.faults.add({ match: { path: "/open-apis/" }, times, action: faultActions[kind] });
        return changed();
      },
    }),
  );
  fastify.post("/api/clear-faults", () => {
    simulator.faults.clear();
    return changed();
  });
}

const faultActions: Readonly<Record<"error" | "limit" | "slow" | "lost", Fault["action"]>> = {
  error: { kind: "respond", status: 500, body: { code: 2200, msg: "internal error (playground)" } },
  limit: {
    kind: "respond",
    status: 429,
    body: { code: 99991400, msg: "request trigger frequency limit (playground)" },
    headers: { "x-ogw-ratelimit-limit": "50", "x-ogw-ratelimit-reset": "1" },
  },
  slow: { kind: "delay", delayMs: 2000 },
  lost: { kind: "lose_response" },
};

const longestFileBytes = 20 * 1024 * 1024;
/** A file as base64 with a little around it. */
const bodyLimitBytes = Math.ceil((longestFileBytes * 4) / 3) + 64 * 1024;

const File = Type.Object({
  name: Type.String({ minLength: 1, maxLength: 200 }),
  base64: Type.String({
    maxLength: Math.ceil(longestFileBytes / 3) * 4,
    pattern: "^[A-Za-z0-9+/]*={0,2}$",
  }),
});

const Message = Type.Object({
  chatId: Id,
  from: Id,
  text: Type.Optional(Type.String({ minLength: 1, maxLength: 20_000 })),
  image: Type.Optional(File),
  file: Type.Optional(File),
  /** Kinds of which the platform's documented example is sent. */
  sample: Type.Optional(
    Type.Union([
      Type.Literal("sticker"),
      Type.Literal("location"),
      Type.Literal("share_user"),
      Type.Literal("share_chat"),
      Type.Literal("todo"),
      Type.Literal("vote"),
    ]),
  ),
  /** Ids of messages to forward as one. */
  forward: Type.Optional(Type.Array(Id, { minItems: 1, maxItems: 100 })),
  mention: Type.Optional(Type.Boolean()),
  /** The message that this one quotes. */
  parentId: Type.Optional(Id),
  /** The answer opens a thread, or continues the thread of the message that it answers. */
  inThread: Type.Optional(Type.Boolean()),
  /** How long ago it was written: the platform delivers it late. */
  lateMinutes: Type.Optional(Type.Integer({ minimum: 0, maximum: 10_080 })),
});
const parseFields = parserOf(Message);
const contents = ["text", "image", "file", "sample", "forward"] as const;

/** A message with exactly one kind of content. */
function parseMessage(input: unknown): ParseResult<Static<typeof Message>> {
  const parsed = parseFields(input);
  if (!parsed.ok || contents.filter((name) => parsed.value[name] !== undefined).length === 1) {
    return parsed;
  }
  return { ok: false, error: `give one of ${contents.join(", ")}` };
}

const parsePresence = parserOf(Type.Object({ openId: Id }));
const parseMenu = parserOf(
  Type.Object({ openId: Id, eventKey: Type.String({ pattern: "^[\\w.:/-]{1,100}$" }) }),
);
const parseEdit = parserOf(
  Type.Object({ messageId: Id, text: Type.String({ minLength: 1, maxLength: 20_000 }) }),
);
const parseReaction = parserOf(
  Type.Object({ messageId: Id, from: Id, emojiType: Type.String({ pattern: "^[A-Za-z]{1,30}$" }) }),
);

interface PersonRouteParts {
  simulator: FeishuSimulator;
  appId: string;
}

/** What people do: write messages of every kind, open the chat, press a menu entry, react. */
function registerPersonRoutes(
  fastify: FastifyInstance,
  { simulator, appId }: PersonRouteParts,
): void {
  fastify.post("/api/messages", { bodyLimit: bodyLimitBytes }, async (request, reply) =>
    answer(reply, {
      request,
      parse: parseMessage,
      async run(message) {
        const { messageId } = await simulator.sendMessage({ ...personMessage(message), appId });
        return { messageId };
      },
    }),
  );
  fastify.post("/api/edit", async (request, reply) =>
    answer(reply, {
      request,
      parse: parseEdit,
      run({ messageId, text }) {
        simulator.editMessage(messageId, text);
        return {};
      },
    }),
  );
  fastify.post("/api/enter", async (request, reply) =>
    answer(reply, {
      request,
      parse: parsePresence,
      run: ({ openId }) => ({ chatId: simulator.enterChat(openId, appId).chatId }),
    }),
  );
  fastify.post("/api/menu", async (request, reply) =>
    answer(reply, {
      request,
      parse: parseMenu,
      run({ openId, eventKey }) {
        simulator.pressMenu(openId, appId, eventKey);
        return {};
      },
    }),
  );
  fastify.post("/api/react", async (request, reply) =>
    answer(reply, {
      request,
      parse: parseReaction,
      run(reaction) {
        simulator.react(reaction);
        return {};
      },
    }),
  );
}

function personMessage(message: Static<typeof Message>): Omit<PersonMessage, "appId"> {
  const { chatId, from, mention, parentId, inThread, lateMinutes } = message;
  const late = lateMinutes ?? 0;
  return {
    chatId,
    from,
    ...contentOf(message),
    ...(mention === undefined ? {} : { mention }),
    ...(parentId === undefined ? {} : { parentId }),
    ...(inThread === true ? { threadId: "new" } : {}),
    ...(late === 0 ? {} : { createdAtMs: systemClock.now() - late * 60_000 }),
  };
}

function contentOf({
  text,
  image,
  file,
  sample,
  forward,
}: Static<typeof Message>): Partial<PersonMessage> {
  if (image !== undefined) return { image: { name: image.name, bytes: bytesOf(image.base64) } };
  if (file !== undefined) return { file: { name: file.name, bytes: bytesOf(file.base64) } };
  if (forward !== undefined) return { forward };
  if (sample !== undefined) return { messageType: sample };
  return text === undefined ? {} : { text };
}

function bytesOf(base64: string): Uint8Array {
  return new Uint8Array(Buffer.from(base64, "base64"));
}

const Text = Type.String({ maxLength: 2000 });
const shownOperations = 60;

const Click = Type.Object({
  messageId: Id,
  openId: Id,
  elementId: Type.Optional(Text),
  value: Type.Optional(Type.Union([Type.Record(Type.String(), Type.Unknown()), Text])),
  name: Type.Optional(Text),
  option: Type.Optional(Text),
  inputValue: Type.Optional(Text),
  formValue: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
});
const parseClick = parserOf(Click);

/** What people do with cards, what was done to a card, and the images of messages. */
function registerCardRoutes(fastify: FastifyInstance, simulator: FeishuSimulator): void {
  fastify.post("/api/click", async (request, reply) =>
    answer(reply, { request, parse: parseClick, run: (click) => simulator.click(clickOf(click)) }),
  );
  fastify.get<{ Params: { cardId: string } }>("/api/cards/:cardId", async (request, reply) => {
    const facts = cardFacts(simulator, request.params.cardId);
    return facts ?? reply.code(404).send({ error: "no such card" });
  });
  fastify.get<{ Params: { key: string } }>("/api/images/:key", async (request, reply) => {
    const media = simulator.media(request.params.key);
    if (
      media?.kind !== "image" ||
      !media.mediaType.startsWith("image/") ||
      !(media.bytes instanceof Uint8Array)
    ) {
      return reply.code(404).send({ error: "no such image" });
    }
    return reply.type(media.mediaType).send(Buffer.from(media.bytes));
  });
}

function clickOf({ messageId, openId, ...given }: Static<typeof Click>): CardClick {
  const known = Object.entries(given).filter(([, value]) => value !== undefined);
  return { messageId, openId, ...Object.fromEntries(known) };
}

function cardFacts(simulator: FeishuSimulator, cardId: string): CardFacts | undefined {
  const card = simulator.card(cardId);
  if (card === undefined) return undefined;
  const { sequence, streaming, frames, operations } = card;
  return {
    cardId,
    sequence,
    streaming,
    frames: frames.length,
    operations: operations.length,
    latest: operations.slice(-shownOperations),
  };
}

/** What a route does with a request. */
interface Work<Body> {
  request: FastifyRequest;
  parse: (input: unknown) => ParseResult<Body>;
  run: (body: Body) => object | Promise<object>;
}

/** Answers with the result of `work`: wrong input is 400 with the reason, ids that name nothing are 404. */
async function answer<Body>(
  reply: FastifyReply,
  { request, parse, run }: Work<Body>,
): Promise<FastifyReply> {
  const parsed = parse(request.body ?? {});
  if (!parsed.ok) return reply.code(400).send({ error: parsed.error });
  try {
    return await reply.send(await run(parsed.value));
  } catch (error) {
    return reply.code(404).send({ error: error instanceof Error ? error.message : String(error) });
  }
}

export interface PersonView {
  openId: string;
  name: string;
}

export interface ChatView {
  chatId: string;
  type: "p2p" | "group";
  /** Each message outside of a thread opens one. */
  topic: boolean;
  name: string;
  members: string[];
  bots: string[];
}

/** All that the page shows; sent when it connects. */
export interface PlaygroundState {
  apps: readonly AppConnection[];
  people: PersonView[];
  chats: ChatView[];
  messages: readonly SimMessage[];
  calls: readonly ApiCall[];
  deliveries: readonly DeliveryRecord[];
  refusals: readonly LimitRefusal[];
  /** Calls of this month that count against the tenant's quota. */
  monthCalls: number;
  /** Armed faults. */
  faults: number;
  /** Where the state of the playground before lies, which could not be read. */
  setAside?: string;
}

/** What was done to a card, in short. */
export interface CardFacts extends Pick<SimCard, "cardId" | "sequence" | "streaming"> {
  frames: number;
  operations: number;
  /** The latest of them, oldest first. */
  latest: readonly SimCardOperation[];
}

/** Server-Sent Events for the page: the whole state first, then each change. */
export interface EventStream {
  /** False when too many pages are open. */
  open(response: ServerResponse): boolean;
  send(event: PlaygroundEvent): void;
  close(): void;
}

/** What the event stream sends to the page. */
export type PlaygroundEvent =
  | { type: "state"; state: PlaygroundState }
  | { type: "message"; message: SimMessage }
  | { type: "call"; call: ApiCall; faults: number; monthCalls: number }
  | { type: "refusal"; refusal: LimitRefusal }
  | { type: "delivery"; delivery: DeliveryRecord }
  | { type: "apps"; apps: readonly AppConnection[] }
  | { type: "person"; person: PersonView }
  | { type: "chat"; chat: ChatView }
  | { type: "faults"; faults: number };

export type {
  ApiCall,
  AppConnection,
  CardClickResult,
  DeliveryRecord,
  LimitRefusal,
  SimCardView,
  SimMessage,
};
