import type { FeishuSimulator, Fault } from "../index.ts";
import { parserOf, type Parser } from "@larkline/protocol";
import type { FastifyInstance } from "fastify";
import { Type } from "typebox";
import { answer } from "./answer.ts";
import { registerCardRoutes } from "./card-routes.ts";
import type { EventStream } from "./event-stream.ts";
import { registerPersonRoutes } from "./person-routes.ts";

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

type Answer = object;

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
  post("/api/chats", parseChat, (chat) => {
    const { chatId } = simulator.addChat(chat);
    // The bots are in it from the start; they hear of a group as when somebody adds them.
    if (chat.type === "group") simulator.addBot(chatId, appId);
    return { chatId };
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
  registerPersonRoutes(fastify, { simulator, appId });
  registerCardRoutes(fastify, simulator);
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
