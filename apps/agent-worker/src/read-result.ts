import { parserOf, type SessionKey, type ToolAnnouncement, type ToolOutcome } from "@larkline/protocol";
import { readResultName, resultPage, type ResultDesk } from "@larkline/store";
import { Type } from "typebox";

const pageCharacters = 20_000;
/** Room for the line that says where a page stands. */
const placeCharacters = 120;

const Input = Type.Object(
  {
    handle: Type.String({ maxLength: 100, description: "The handle as it stands in the shortened result." }),
    offset: Type.Optional(
      Type.Integer({ minimum: 0, description: "Where to begin, in characters; 0 if absent, the beginning." }),
    ),
  },
  { additionalProperties: false },
);

const parseInput = parserOf(Input);

export const readResultAnnouncement: ToolAnnouncement = {
  spec: {
    name: readResultName,
    description:
      "Reads a tool result that was too long for the conversation, page by page. Use it with the handle that " +
      "stands in the shortened result; each page says where the next one begins.",
    inputSchema: { ...Input },
  },
  effect: "pure",
  requiresApproval: false,
  risk: "low",
  secrets: ["handle"],
  timeoutMs: 30_000,
};

/**
 * A page of a stored result, and where it stands in the whole. `room`: most characters that the model
 * gets of one result. Rejects when the store does.
 */
export async function readResult(
  desk: ResultDesk,
  { session, input, room }: { session: SessionKey; input: unknown; room: number },
): Promise<ToolOutcome> {
  const parsed = parseInput(input);
  if (!parsed.ok) return { ok: false, error: `The arguments do not fit: ${parsed.error}` };
  const { handle, offset = 0 } = parsed.value;
  const characters = Math.max(1, Math.min(pageCharacters, room - placeCharacters));
  const page = await resultPage(desk, session, { handle, offset, characters });
  if (page === undefined) {
    return { ok: false, error: "This conversation has no stored result of that handle, or not any more (7 days)." };
  }
  const from = Math.min(offset, page.characters);
  const next = page.nextOffset === undefined ? "this is the end" : `go on with offset ${page.nextOffset}`;
  const place = `[Characters ${from} to ${from + page.text.length} of ${page.characters}; ${next}.]`;
  return { ok: true, result: `${page.text}\n${place}` };
}
