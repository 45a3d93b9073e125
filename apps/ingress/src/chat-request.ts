import { ChatRequest, jsonParserOf, parserOf, Traceparent } from "@larkline/protocol";
import { bodyText } from "./api-request.ts";

/** What a client asks for with `POST /chat`. */
export interface Ask {
  text: string;
  sessionId: string | undefined;
  /** Dedup id of the message within its session. */
  key: string | undefined;
  onDisconnect: "cancel" | "continue" | undefined;
  /** Tool calls of the run come after those of others. */
  background: boolean;
  /** Name of the agent that is to answer; not looked up yet. */
  agent: string | undefined;
  /** The client's own trace, which the message goes on with. */
  traceparent: Traceparent | undefined;
  /** Given by a client that comes back: nothing is appended unless `key` is there, too. */
  lastEventId: number | undefined;
}

export type ParsedAsk = { ok: true; ask: Ask } | { ok: false; error: string };

type Headers = Readonly<Record<string, string | string[] | undefined>>;

const parseBody = jsonParserOf(ChatRequest);
const parseFields = parserOf(ChatRequest);
const parseTraceparent = parserOf(Traceparent);

function headerOf(headers: Headers, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** The trace of a client (W3C Trace Context); one that is not well-formed is no reason to refuse a message. */
function traceparentIn(headers: Headers): Traceparent | undefined {
  const parsed = parseTraceparent(headerOf(headers, "traceparent"));
  return parsed.ok && !/-0+-/.test(parsed.value.slice(2)) ? parsed.value : undefined;
}

/** The number in a `Last-Event-ID` header or an `after` parameter; undefined when it is none of ours. */
export function eventSeqOf(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

/**
 * Reads body and headers of `POST /chat`; fields of the body win over `X-Session-Id` and
 * `Idempotency-Key`. The content type is not looked at.
 */
export function parseAsk(body: unknown, headers: Headers): ParsedAsk {
  const text = bodyText(body);
  if (text === undefined) return { ok: false, error: "the body is not valid UTF-8" };
  const parsed = parseBody(text);
  if (!parsed.ok) return parsed;
  const sessionId = parsed.value.session_id ?? headerOf(headers, "x-session-id");
  const key = parsed.value.message_id ?? headerOf(headers, "idempotency-key");
  // Headers obey the same patterns as the fields they stand for.
  const checked = parseFields({
    ...(sessionId === undefined ? {} : { session_id: sessionId }),
    ...(key === undefined ? {} : { message_id: key }),
  });
  if (!checked.ok) return checked;
  const lastEventId = eventSeqOf(headerOf(headers, "last-event-id"));
  if (sessionId === undefined && (key !== undefined || lastEventId !== undefined)) {
    return { ok: false, error: "message_id, Idempotency-Key and Last-Event-ID need a session_id" };
  }
  const { message, on_disconnect: given, background = false, agent } = parsed.value;
  const onDisconnect = given === "detach" ? "continue" : given;
  const traceparent = traceparentIn(headers);
  const asked = { text: message ?? "", sessionId, key, onDisconnect, background, agent, traceparent, lastEventId };
  return { ok: true, ask: asked };
}
