import { once } from "node:events";
import type { Writable } from "node:stream";
import type { SessionKey } from "@larkline/protocol";
import { type Message, textOf } from "@larkline/protocol/content";
import type { Rating } from "@larkline/store/operations";
import {
  messagesOf,
  openPersonStores,
  type PersonStores,
  type PersonStoresOptions,
} from "./person-data.ts";

interface RatingsTask {
  places: Omit<PersonStoresOptions, "onError">;
  /** Epoch ms: those that were said last from the first to before the second. */
  fromMs: number;
  toMs: number;
  output: Writable;
}

/**
 * Prints ratings as cases for an evaluation, one JSON object a line, the newest first. People are left out; a line with
 * content has a record in the audit log. Rejects when it could not be done to the end.
 */
export async function exportRatings({ places, fromMs, toMs, output }: RatingsTask): Promise<void> {
  let lastError: Error | undefined;
  const stores = openPersonStores({ ...places, onError: (error) => (lastError = error) });
  try {
    for await (const rating of stores.ratings.newest()) {
      if (rating.atMs >= toMs) continue;
      if (rating.atMs < fromMs) break;
      const line = JSON.stringify(await caseOf(stores, rating));
      if (!output.write(`${line}\n`)) await once(output, "drain");
    }
  } catch (error) {
    // A connection that fails says more than the wait that it ended.
    throw lastError ?? error;
  } finally {
    await stores.close();
  }
}

/** What an evaluation needs of one rating: what was asked and answered, with which tools, and how good that was. */
async function caseOf(
  stores: PersonStores,
  { person: _person, app, ...rating }: Rating,
): Promise<object> {
  const { turn, atMs, ...said } = rating;
  const asked = await exchangeOf(stores, turn);
  if (asked !== undefined) {
    const session = sessionOf(turn);
    await stores.audit.append({ kind: "content_shown", app, session, turnId: turn, userId: "cli" });
  }
  return { id: turn, ratedAt: new Date(atMs).toISOString(), ...said, ...asked };
}

interface Exchange {
  input: string;
  calls: { tool: string; arguments: unknown }[];
  output: string;
}

/** The question and the answer; undefined where they are not kept any more. */
async function exchangeOf(stores: PersonStores, turn: string): Promise<Exchange | undefined> {
  const seq = Number(turn.slice(turn.lastIndexOf("-") + 1));
  let exchange: Exchange | undefined;
  for await (const { message } of messagesOf(stores, sessionOf(turn))) {
    if (message.role === "user" && message.seq !== undefined) {
      if (exchange !== undefined) break;
      if (message.seq === seq) exchange = { input: textOf(message), calls: [], output: "" };
    } else if (exchange !== undefined) exchange = withMessage(exchange, message);
  }
  return exchange;
}

/** A message of the turn: what joined it, a step of the model with its calls, or its last words. */
function withMessage(exchange: Exchange, message: Message): Exchange {
  if (message.role === "user") {
    return { ...exchange, input: `${exchange.input}\n\n${textOf(message)}` };
  }
  if (message.role === "tool") return exchange;
  const calls = message.content.flatMap((part) =>
    part.type === "tool_use" ? [{ tool: part.name, arguments: part.arguments }] : [],
  );
  const said = textOf(message);
  return {
    ...exchange,
    calls: [...exchange.calls, ...calls],
    output: said === "" ? exchange.output : said,
  };
}

function sessionOf(turn: string): SessionKey {
  return turn.slice(0, turn.lastIndexOf("-"));
}
