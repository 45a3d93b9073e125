import type { CardClick, FeishuSimulator } from "../index.ts";
import { parserOf } from "@larkline/protocol";
import type { FastifyInstance } from "fastify";
import { Type, type Static } from "typebox";
import { answer } from "./answer.ts";
import type { CardFacts } from "./view.ts";

const Id = Type.String({ pattern: "^[A-Za-z0-9_-]{1,80}$" });
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
export function registerCardRoutes(fastify: FastifyInstance, simulator: FeishuSimulator): void {
  fastify.post("/api/click", async (request, reply) =>
    answer(reply, { request, parse: parseClick, run: (click) => simulator.click(clickOf(click)) }),
  );
  fastify.get<{ Params: { cardId: string } }>("/api/cards/:cardId", async (request, reply) => {
    const facts = cardFacts(simulator, request.params.cardId);
    return facts ?? reply.code(404).send({ error: "no such card" });
  });
  fastify.get<{ Params: { key: string } }>("/api/images/:key", async (request, reply) => {
    const media = simulator.media(request.params.key);
    if (media?.kind !== "image" || !media.mediaType.startsWith("image/") || !(media.bytes instanceof Uint8Array)) {
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
