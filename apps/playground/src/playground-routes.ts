import type { FeishuSimulator, Fault } from "@larkline/feishu-simulator";
import { parserOf, type Parser } from "@larkline/protocol";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { Type } from "typebox";
import type { EventStream } from "./event-stream.ts";

const Id = Type.String({ pattern: "^[A-Za-z0-9_-]{1,80}$" });
const Name = Type.String({ minLength: 1, maxLength: 60, pattern: "\\S" });

const parsePerson = parserOf(Type.Object({ name: Name }));
const parseChat = parserOf(
  Type.Object({
    type: Type.Union([Type.Literal("p2p"), Type.Literal("group")]),
    name: Type.String({ maxLength: 60 }),
    members: Type.Array(Id, { minItems: 1, maxItems: 50, uniqueItems: true }),
  }),
);
const parseMessage = parserOf(
  Type.Object({
    chatId: Id,
    from: Id,
    text: Type.String({ minLength: 1, maxLength: 20_000 }),
    mention: Type.Boolean(),
    rootId: Type.Optional(Id),
  }),
);
const parseMessageId = parserOf(Type.Object({ messageId: Id }));
const parseTransport = parserOf(
  Type.Object({ transport: Type.Union([Type.Literal("auto"), Type.Literal("webhook"), Type.Literal("websocket")]) }),
);
const parseFault = parserOf(
  Type.Object({
    kind: Type.Union([Type.Literal("error"), Type.Literal("limit"), Type.Literal("slow"), Type.Literal("lost")]),
    times: Type.Integer({ minimum: 1, maximum: 100 }),
  }),
);

interface RouteParts {
  simulator: FeishuSimulator;
  stream: EventStream;
  appId: string;
}

type Answer = Record<string, unknown>;

/** The JSON API of the page. Wrong input is 400 with the reason; ids that name nothing are 404. */
export function registerPlaygroundRoutes(fastify: FastifyInstance, { simulator, stream, appId }: RouteParts): void {
  const post = <Body>(path: string, parse: Parser<Body>, run: (body: Body) => Answer | Promise<Answer>): void => {
    fastify.post(path, async (request, reply) => answer(reply, { request, parse, run }));
  };
  fastify.get("/api/events", (_request, reply) => {
    if (!stream.open(reply.raw)) return reply.code(503).send({ error: "too many pages are open" });
    return reply.hijack();
  });
  post("/api/people", parsePerson, ({ name }) => ({ openId: simulator.addUser({ name: name.trim() }).openId }));
  post("/api/chats", parseChat, (chat) => ({ chatId: simulator.addChat(chat).chatId }));
  post("/api/messages", parseMessage, async (message) => {
    const { messageId } = await simulator.sendMessage({ ...message, appId });
    return { messageId };
  });
  post("/api/redeliver", parseMessageId, async ({ messageId }) => ({ report: await simulator.redeliver(messageId) }));
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
}

function registerFaults(fastify: FastifyInstance, simulator: FeishuSimulator, stream: EventStream): void {
  const told = (): Answer => {
    stream.send({ type: "faults", faults: simulator.faults.size });
    return {};
  };
  fastify.post("/api/faults", async (request, reply) =>
    answer(reply, {
      request,
      parse: parseFault,
      run({ kind, times }) {
        simulator.faults.add({ match: { path: "/open-apis/" }, times, action: faultActions[kind] });
        return told();
      },
    }),
  );
  fastify.post("/api/clear-faults", () => {
    simulator.faults.clear();
    return told();
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

interface Work<Body> {
  request: FastifyRequest;
  parse: Parser<Body>;
  run: (body: Body) => Answer | Promise<Answer>;
}

async function answer<Body>(reply: FastifyReply, { request, parse, run }: Work<Body>): Promise<FastifyReply> {
  const parsed = parse(request.body ?? {});
  if (!parsed.ok) return reply.code(400).send({ error: parsed.error });
  try {
    return reply.send(await run(parsed.value));
  } catch (error) {
    return reply.code(404).send({ error: error instanceof Error ? error.message : String(error) });
  }
}
