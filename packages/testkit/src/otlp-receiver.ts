import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";

/** A span as it came in, with its attributes by name. */
export interface ReceivedSpan {
  service: string;
  traceId: string;
  spanId: string;
  /** Absent: a root. */
  parentSpanId: string | undefined;
  name: string;
  startMs: number;
  endMs: number;
  failed: boolean;
  attributes: Readonly<Record<string, unknown>>;
  events: readonly string[];
}

/** A collector of traces that keeps what it gets. */
export interface OtlpReceiver {
  /** What `OTEL_EXPORTER_OTLP_ENDPOINT` should be. */
  readonly url: string;
  readonly spans: readonly ReceivedSpan[];
  readonly requests: readonly { path: string; headers: IncomingHttpHeaders }[];
  close(): Promise<void>;
}

type Fields = Readonly<Record<string, unknown>>;

function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

function listOf(value: unknown): Fields[] {
  return Array.isArray(value) ? value.map(fieldsOf) : [];
}

/** Attributes are pairs of a name and a value that says its type ("OpenTelemetry protocol, AnyValue"). */
function attributesOf(value: unknown): Record<string, unknown> {
  return Object.fromEntries(
    listOf(value).map(({ key, value: any }) => [String(key), Object.values(fieldsOf(any))[0]]),
  );
}

function millisecondsOf(nanoseconds: unknown): number {
  return Number(nanoseconds) / 1e6;
}

const failedStatus = 2;

function spanOf(service: string, span: Fields): ReceivedSpan {
  const { traceId, spanId, parentSpanId, name, status } = span;
  return {
    service,
    traceId: String(traceId),
    spanId: String(spanId),
    parentSpanId:
      typeof parentSpanId === "string" && parentSpanId !== "" ? parentSpanId : undefined,
    name: String(name),
    startMs: millisecondsOf(span["startTimeUnixNano"]),
    endMs: millisecondsOf(span["endTimeUnixNano"]),
    failed: fieldsOf(status)["code"] === failedStatus,
    attributes: attributesOf(span["attributes"]),
    events: listOf(span["events"]).map((event) => String(event["name"])),
  };
}

function spansIn(body: unknown): ReceivedSpan[] {
  return listOf(fieldsOf(body)["resourceSpans"]).flatMap(({ resource, scopeSpans }) => {
    const service = String(attributesOf(fieldsOf(resource)["attributes"])["service.name"]);
    return listOf(scopeSpans).flatMap(({ spans }) =>
      listOf(spans).map((span) => spanOf(service, span)),
    );
  });
}

/** Starts an OTLP receiver for JSON over HTTP on a free port of loopback. */
export async function startOtlpReceiver(): Promise<OtlpReceiver> {
  const spans: ReceivedSpan[] = [];
  const requests: { path: string; headers: IncomingHttpHeaders }[] = [];
  const take = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(Buffer.from(chunk));
    requests.push({ path: request.url ?? "", headers: request.headers });
    const body: unknown = JSON.parse(Buffer.concat(chunks).toString());
    spans.push(...spansIn(body));
    response.setHeader("content-type", "application/json").end("{}");
  };
  const server = createServer((request, response) => {
    take(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return {
    url: `http://127.0.0.1:${port}`,
    spans,
    requests,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
