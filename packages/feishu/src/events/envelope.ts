import { parserOf, type ParseResult } from "@larkline/protocol";
import { Type, type Static } from "typebox";

/** An event or callback of the platform, whichever version of the envelope it came in. */
export interface Envelope {
  /** Unique per event; a redelivery keeps it. Messages are deduplicated by their message id instead. */
  eventId: string;
  /** For example `im.message.receive_v1`. */
  type: string;
  appId: string;
  /** Tenant the app is installed in. */
  tenantKey: string;
  /** The verification token; already checked when the envelope comes from a verifier. */
  token: string;
  /** Epoch ms; 0 when the platform says nothing. */
  createdAtMs: number;
  event: Record<string, unknown>;
}

/** Reads a decrypted event, envelope 2.0 (it has `schema`) or 1.0. Nothing is flattened or renamed inside `event`. */
export function parseEnvelope(data: unknown): ParseResult<Envelope> {
  if (typeof data !== "object" || data === null) return { ok: false, error: "event must be an object" };
  if ("schema" in data) {
    const parsed = parseV2(data);
    return parsed.ok ? { ok: true, value: fromV2(parsed.value) } : parsed;
  }
  const parsed = parseV1(data);
  return parsed.ok ? fromV1(parsed.value) : parsed;
}

const EventBody = Type.Record(Type.String(), Type.Unknown());
const Id = Type.String({ minLength: 1, maxLength: 256 });
const Field = Type.Optional(Type.Union([Type.String({ maxLength: 1024 }), Type.Null()]));

const EnvelopeV2 = Type.Object({
  schema: Type.String(),
  header: Type.Object({
    event_id: Id,
    event_type: Id,
    token: Field,
    create_time: Field,
    tenant_key: Field,
    app_id: Field,
  }),
  event: Type.Optional(EventBody),
});

const EnvelopeV1 = Type.Object({
  uuid: Id,
  type: Type.Literal("event_callback"),
  token: Field,
  ts: Field,
  event: EventBody,
});

const parseV2 = parserOf(EnvelopeV2);
const parseV1 = parserOf(EnvelopeV1);

/**
 * Milliseconds of a time string: the platform's documents show seconds with a fraction (1.0), 13
 * digits (ms) and 16 digits (µs) for the same field.
 */
export function epochMsOf(time: string | null | undefined): number {
  if (time === undefined || time === null || !/^\d{1,17}(?:\.\d{1,9})?$/.test(time)) return 0;
  const digits = time.split(".", 1)[0]?.length ?? 0;
  if (digits >= 16) return Math.floor(Number(time) / 1000);
  return digits >= 12 ? Math.floor(Number(time)) : Math.floor(Number(time) * 1000);
}

function fromV2({ header, event }: Static<typeof EnvelopeV2>): Envelope {
  return {
    eventId: header.event_id,
    type: header.event_type,
    appId: header.app_id ?? "",
    tenantKey: header.tenant_key ?? "",
    token: header.token ?? "",
    createdAtMs: epochMsOf(header.create_time),
    event: event ?? {},
  };
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function fromV1(envelope: Static<typeof EnvelopeV1>): ParseResult<Envelope> {
  const { event } = envelope;
  const type = textOf(event["type"]);
  if (type === "") return { ok: false, error: "event.type must be a string" };
  return {
    ok: true,
    value: {
      eventId: envelope.uuid,
      type,
      appId: textOf(event["app_id"]),
      tenantKey: textOf(event["tenant_key"]),
      token: envelope.token ?? "",
      createdAtMs: epochMsOf(envelope.ts),
      event,
    },
  };
}
