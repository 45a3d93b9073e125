import { createHash } from "node:crypto";
import { jsonParserOf, type ParseResult } from "@larkline/protocol";
import { systemClock, type Clock } from "@larkline/protocol/clock";
import {
  CallInput,
  maxInputStateLength,
  type InputRequired,
  type InputResponse,
} from "@larkline/protocol/tool";
import { InputRequiredError } from "@larkline/tool-kit";
import type {
  ElicitRequest,
  ElicitResult,
  InputRequiredResult,
} from "@modelcontextprotocol/client";

/*
 * What a server asks people in the middle of a call. A server of the stateless revision ends its answer with its requests,
 * and gets the answers with the next attempt. A server of an older revision waits for each answer inside its call: that
 * call is ended, and repeated once a person has answered; whatever the server asks again then has its answer at once.
 */

const maxRequests = 5;

const [maxMessage, maxSchema] = [4_000, 16_384];

type Asked = Pick<InputRequiredResult, "inputRequests" | "requestState">;

/** What a server asks, within our bounds; an error where it asks for something else than forms. */
export function askedBy(
  server: string,
  { inputRequests = {}, requestState: state }: Asked,
): ParseResult<InputRequired> {
  const asked = Object.entries(inputRequests);
  if (asked.length === 0 || asked.length > maxRequests) {
    return refused(`${asked.length} requests at once`);
  }
  if (state !== undefined && Buffer.byteLength(state) > maxInputStateLength) {
    return refused("its state is too long");
  }
  const requests: InputRequired["requests"] = [];
  for (const [key, { method, params }] of asked) {
    if (method !== "elicitation/create" || params.mode === "url") {
      return refused("only forms are shown to people");
    }
    const { message, requestedSchema: schema } = params;
    if (key.length > 200 || JSON.stringify(schema).length > maxSchema) {
      return refused("its form is too large");
    }
    requests.push({ key, message: message.slice(0, maxMessage).toWellFormed(), schema });
  }
  return { ok: true, value: { server, requests, ...(state === undefined ? {} : { state }) } };
}

function refused(why: string): { ok: false; error: string } {
  return { ok: false, error: `the server asked for input that it cannot have: ${why}` };
}

// Servers of older revisions.

/** How long a server may take to end a call after it has learned that its question has no answer yet. */
const endsWithinMs = 5_000;

/** More questions than people answer for one call: the server asks again and again. */
const maxElicitations = 20;

/** The answers of the attempts before are what this side keeps as the state of a call. */
const parseKept = jsonParserOf(CallInput);

/** What the server of one call asks on the connection of that call, and what people answered in the attempts before. */
export class Elicitations {
  readonly #server: string;
  readonly #answers: Readonly<Record<string, InputResponse>>;
  readonly #times = new Map<string, number>();
  readonly #ended = new AbortController();
  readonly #clock: Clock;
  #stopTimer: (() => void) | undefined;
  #count = 0;
  #open: Error | undefined;

  constructor(server: string, given: CallInput | undefined, clock: Clock = systemClock) {
    this.#server = server;
    this.#clock = clock;
    const kept = given?.state === undefined ? undefined : parseKept(given.state);
    this.#answers = { ...(kept?.ok === true ? kept.value.responses : {}), ...given?.responses };
  }

  /** Why the attempt ends: the first question that has no answer yet. */
  get open(): Error | undefined {
    return this.#open;
  }

  /** Aborts where a server does not end a call that waits for an answer. */
  get signal(): AbortSignal {
    return this.#ended.signal;
  }

  /**
   * The answer to the server. An answer is given to the very question that a person read, and to none that is worded
   * otherwise. A question without one is cancelled, which says that no choice was made: the server ends the call itself.
   */
  answer({ params }: Pick<ElicitRequest, "params">): ElicitResult {
    this.#count += 1;
    if (this.#count > maxElicitations) this.#ended.abort(new Error("the server asks without end"));
    const key = this.#keyOf(params);
    const known = Object.hasOwn(this.#answers, key) ? this.#answers[key] : undefined;
    // Once a question is open the attempt is lost: the server gets as far as that, and no further.
    if (known !== undefined && this.#open === undefined) return known;
    this.#open ??= this.#asking(key, params);
    this.#stopTimer ??= this.#clock.after(endsWithinMs, () => this.#ended.abort(this.#open));
    return { action: "cancel" };
  }

  /** The call has ended. Idempotent. */
  close(): void {
    this.#stopTimer?.();
  }

  /** The same for the same question in each attempt; a server may ask it several times. */
  #keyOf(params: ElicitRequest["params"]): string {
    const { mode = "form", message } = params;
    const schema = "requestedSchema" in params ? params.requestedSchema : undefined;
    const words = createHash("sha256")
      .update(JSON.stringify([mode, message, schema]))
      .digest("hex")
      .slice(0, 32);
    const times = (this.#times.get(words) ?? 0) + 1;
    this.#times.set(words, times);
    return `${words}.${times}`;
  }

  #asking(key: string, params: ElicitRequest["params"]): Error {
    const isFirst = Object.keys(this.#answers).length === 0;
    const kept: CallInput = { responses: this.#answers };
    const asked = askedBy(this.#server, {
      inputRequests: { [key]: { method: "elicitation/create", params } },
      ...(isFirst ? {} : { requestState: JSON.stringify(kept) }),
    });
    return asked.ok ? new InputRequiredError(asked.value) : new Error(asked.error);
  }
}
