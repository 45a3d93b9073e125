import type { FeishuSimulator, PersonMessage } from "../index.ts";
import { parserOf, type ParseResult } from "@larkline/protocol";
import type { FastifyInstance } from "fastify";
import { Type, type Static } from "typebox";
import { answer } from "./answer.ts";

const Id = Type.String({ pattern: "^[A-Za-z0-9_-]{1,80}$" });
const longestFileBytes = 20 * 1024 * 1024;
/** A file as base64 with a little around it. */
const bodyLimitBytes = Math.ceil((longestFileBytes * 4) / 3) + 64 * 1024;

const File = Type.Object({
  name: Type.String({ minLength: 1, maxLength: 200 }),
  base64: Type.String({ maxLength: Math.ceil(longestFileBytes / 3) * 4, pattern: "^[A-Za-z0-9+/]*={0,2}$" }),
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
  /** The answer opens a thread, or goes on in the one of the message that it answers. */
  inThread: Type.Optional(Type.Boolean()),
  /** How long ago it was written: the platform delivers it late. */
  lateMinutes: Type.Optional(Type.Integer({ minimum: 0, maximum: 10_080 })),
});
const parseFields = parserOf(Message);
const contents = ["text", "image", "file", "sample", "forward"] as const;

/** A message with exactly one kind of content. */
function parseMessage(input: unknown): ParseResult<Static<typeof Message>> {
  const parsed = parseFields(input);
  if (!parsed.ok || contents.filter((name) => parsed.value[name] !== undefined).length === 1) return parsed;
  return { ok: false, error: `give one of ${contents.join(", ")}` };
}

const parsePresence = parserOf(Type.Object({ openId: Id }));
const parseMenu = parserOf(Type.Object({ openId: Id, eventKey: Type.String({ pattern: "^[\\w.:/-]{1,100}$" }) }));
const parseEdit = parserOf(Type.Object({ messageId: Id, text: Type.String({ minLength: 1, maxLength: 20_000 }) }));
const parseReaction = parserOf(
  Type.Object({ messageId: Id, from: Id, emojiType: Type.String({ pattern: "^[A-Za-z]{1,30}$" }) }),
);

interface PersonRouteParts {
  simulator: FeishuSimulator;
  appId: string;
}

/** What people do: write messages of every kind, open the chat, press a menu entry, react. */
export function registerPersonRoutes(fastify: FastifyInstance, { simulator, appId }: PersonRouteParts): void {
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
    ...(late === 0 ? {} : { createdAtMs: Date.now() - late * 60_000 }),
  };
}

function contentOf({ text, image, file, sample, forward }: Static<typeof Message>): Partial<PersonMessage> {
  if (image !== undefined) return { image: { name: image.name, bytes: bytesOf(image.base64) } };
  if (file !== undefined) return { file: { name: file.name, bytes: bytesOf(file.base64) } };
  if (forward !== undefined) return { forward };
  if (sample !== undefined) return { messageType: sample };
  return text === undefined ? {} : { text };
}

function bytesOf(base64: string): Uint8Array {
  return new Uint8Array(Buffer.from(base64, "base64"));
}
