import { parserOf, type SessionKey } from "@larkline/protocol";
import { readResultName, type ToolAnnouncement, type ToolOutcome } from "@larkline/protocol/tool";
import type { CallState } from "@larkline/protocol/turn";
import { Type } from "@larkline/protocol/type";
import type { Ability, AbilityWork } from "../../turn/ability.ts";

/*
 * Results of tools that are too long for a conversation: the model gets the beginning and the end of one, and reads the
 * rest page by page.
 */

/** The store of long results. */
export interface ResultsClient {
  /** Resolves to undefined where the session has no result of that handle, or not any more. */
  page(
    session: SessionKey,
    page: { readonly handle: string; readonly offset: number; readonly characters: number },
  ): Promise<
    { readonly text: string; readonly characters: number; readonly nextOffset?: number } | undefined
  >;
}

declare module "../../turn/ability.ts" {
  interface AbilityClients {
    results: ResultsClient;
  }
}

/** Room for the line that gives the place of a page. */
const placeCharacters = 120;
const pageCharacters = 20_000;

const ReadResultInput = Type.Object(
  {
    handle: Type.String({
      maxLength: 100,
      description: "The handle that the shortened result names.",
    }),
    offset: Type.Optional(
      Type.Integer({
        minimum: 0,
        description: "Where to begin, in characters; 0 if absent, the beginning.",
      }),
    ),
  },
  { additionalProperties: false },
);

const parseReadResult = parserOf(ReadResultInput);

const tool: ToolAnnouncement = {
  spec: {
    name: readResultName,
    description:
      "Reads a tool result that was too long for the conversation, page by page. Use it with the handle that " +
      "the shortened result names; each page says where the next one begins.",
    inputSchema: { ...ReadResultInput },
  },
  effect: "pure",
  requiresApproval: false,
  risk: "low",
  title: { zh: "读取完整结果", en: "Read a long result" },
  secrets: ["handle"],
  timeoutMs: 30_000,
};

/** The ability of every agent that has tools. */
export const results: Ability = {
  name: "results",
  toolNames: [readResultName],
  tools: () => [tool],
  run,
};

/** A page of a stored result, and its place in the whole. Rejects when the store does. */
async function run(
  call: CallState,
  { turn, maxResultChars, clients }: AbilityWork,
): Promise<ToolOutcome> {
  const parsed = parseReadResult(call.arguments);
  if (!parsed.ok) return { ok: false, error: `The arguments do not fit: ${parsed.error}` };
  const { handle, offset = 0 } = parsed.value;
  const characters = Math.max(1, Math.min(pageCharacters, maxResultChars - placeCharacters));
  const page = await clients.results.page(turn.message.session, { handle, offset, characters });
  if (page === undefined) {
    return {
      ok: false,
      error: "This conversation has no stored result of that handle, or not any more (7 days).",
    };
  }
  const from = Math.min(offset, page.characters);
  const next =
    page.nextOffset === undefined ? "this is the end" : `go on with offset ${page.nextOffset}`;
  const place = `[Characters ${from} to ${from + page.text.length} of ${page.characters}; ${next}.]`;
  return { ok: true, result: `${page.text}\n${place}` };
}
