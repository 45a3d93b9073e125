import type { ReplyObject } from "@larkline/protocol";
import type { FeishuApi } from "../feishu-api.ts";
import type { CallOptions } from "../transport/api-call.ts";
import { FeishuError } from "../transport/error.ts";
import type { FeishuLogger } from "../transport/sdk.ts";

// Answers outside of chats: one row for each kind of object says how to read what the bot has written there, to write a
// piece of text, and what is done at the end of a run.

/** What is to be written. */
interface ObjectAnswer {
  text: string;
  /** What stands there since then is not repeated, epoch ms: the platform knows no key for what is written. */
  sinceMs: number;
  /** The run that it answers has ended well. */
  isDone: boolean;
}

interface ObjectKind<Kind extends ReplyObject["kind"]> {
  /** Longest piece of a text, in characters. */
  maxPiece: number;
  /** The texts that stand there, with the times at which they were written, epoch ms. */
  written(
    api: FeishuApi,
    object: ObjectOf<Kind>,
    options: CallOptions,
  ): Promise<readonly { text: string; createdAtMs: number }[]>;
  write(api: FeishuApi, object: ObjectOf<Kind>, text: string, options: CallOptions): Promise<void>;
  /** After the answer of a run that has ended well. Doing it twice is the same as once. */
  finish?(
    api: FeishuApi,
    object: ObjectOf<Kind>,
    nowMs: number,
    options: CallOptions,
  ): Promise<void>;
}

type ObjectOf<Kind extends ReplyObject["kind"]> = Extract<ReplyObject, { kind: Kind }>;

const kinds: { readonly [Kind in ReplyObject["kind"]]: ObjectKind<Kind> } = {
  comment: {
    // The platform's page names no limit.
    maxPiece: 2_000,
    written: async ({ comments }, object, options) =>
      object.isWhole
        ? (await comments.fetchWhole(object, options)).flatMap(({ replies }) => replies)
        : (await comments.fetch(object, options)).replies,
    write: async ({ comments }, object, text, options) =>
      await (object.isWhole
        ? comments.add(object, text, options)
        : comments.reply(object, text, options)),
  },
  task: {
    // "Create a comment" of the tasks.
    maxPiece: 3_000,
    written: async ({ tasks }, { guid }, options) => await tasks.comments(guid, options),
    write: async ({ tasks }, { guid }, text, options) => await tasks.comment(guid, text, options),
    /** Completion counts for all who are responsible, so where others are it is left to them. */
    finish: async ({ tasks, appId }, { guid }, nowMs, options) => {
      const { isDone, members } = await tasks.fetch(guid, options);
      const responsible = members.filter(({ role }) => role === "assignee");
      if (isDone || responsible.some(({ id }) => id !== appId)) return;
      await tasks.complete(guid, nowMs, options);
    },
  },
};

/** Writes an answer where it belongs, in as many pieces as it needs. Rejects with a FeishuError only. */
export async function answerObject<Kind extends ReplyObject["kind"]>(
  api: FeishuApi,
  object: ObjectOf<Kind>,
  { text, sinceMs, isDone }: ObjectAnswer,
  { nowMs, logger, ...options }: CallOptions & { nowMs: number; logger: FeishuLogger },
): Promise<void> {
  const kind: ObjectKind<Kind> = kinds[object.kind as Kind];
  const written = await kind.written(api, object, options);
  const before = written.filter(({ createdAtMs }) => createdAtMs >= sinceMs);
  for (const piece of piecesOf(text, kind.maxPiece)) {
    if (before.some((one) => one.text === piece)) continue;
    await kind.write(api, object, piece, options);
  }
  if (!isDone) return;
  await kind.finish?.(api, object, nowMs, options).catch((error: unknown) => {
    // The answer stands there: a right that is missing does not make it an answer that is lost.
    if (!(error instanceof FeishuError) || error.retryable || error.kind === "cancelled") {
      throw error;
    }
    logger.warn(
      { object: object.kind, kind: error.kind, code: error.code },
      "an object stays open",
    );
  });
}

function piecesOf(text: string, maxPiece: number): string[] {
  const pieces: string[] = [];
  let rest = text.trim();
  while (rest.length > maxPiece) {
    const line = rest.lastIndexOf("\n", maxPiece);
    const at = line > maxPiece / 2 ? line : maxPiece;
    pieces.push(rest.slice(0, at).trimEnd());
    rest = rest.slice(at).trimStart();
  }
  return rest === "" ? pieces : [...pieces, rest];
}
