import type { StreamFrame } from "@larkline/protocol/views/stream-frame";

/** An answer of `POST /chat` as it arrives. */
export interface ChatStream {
  frames(): StreamFrame[];
  /** The bytes so far as they came, heartbeats included. */
  text(): string;
  /** Waits until the fact holds; fails at the end of the stream or after ten seconds. */
  until(fact: (frames: readonly StreamFrame[]) => boolean): Promise<void>;
  /** Waits until the server has closed the connection, and gives all frames. */
  end(): Promise<StreamFrame[]>;
  leave(): void;
}

const patienceMs = 80_000;

function framesIn(text: string): StreamFrame[] {
  const complete = text.split("\n\n").slice(0, -1);
  const data = complete.flatMap((block) =>
    block.split("\n").filter((line) => line.startsWith("data: ")),
  );
  return data.map((line) => JSON.parse(line.slice("data: ".length)) as StreamFrame); // our own server wrote it
}

/**
 * What a client holds of these frames: a `restart` voids the pieces of the answer since the last outcome of a tool. A
 * worker's successor, which asks the model again, sends one.
 */
export function heldFrames(frames: readonly StreamFrame[]): StreamFrame[] {
  return frames.reduce<StreamFrame[]>((held, frame) => {
    if (frame.type !== "restart") return [...held, frame];
    const outcome = held.findLastIndex(
      ({ type }) => type === "tool_result" || type === "tool_error",
    );
    return held.filter(({ type }, at) => at <= outcome || type !== "assistant");
  }, []);
}

/** Sends a message of a session over the HTTP API, or a whole body, and reads its stream in the background. */
export async function chat(
  url: string,
  session: string,
  sent: string | object,
): Promise<ChatStream> {
  const body = typeof sent === "string" ? { message: sent } : sent;
  return await open(url, { session_id: session, ...body }, {});
}

/** Continues a stream after the frame of that number, at whichever ingress. */
export async function resume(url: string, session: string, lastSeq: number): Promise<ChatStream> {
  return await open(url, { session_id: session }, { "last-event-id": String(lastSeq) });
}

async function open(
  url: string,
  body: object,
  headers: Record<string, string>,
): Promise<ChatStream> {
  const leaving = new AbortController();
  const response = await fetch(`${url}/chat`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal: AbortSignal.any([leaving.signal, AbortSignal.timeout(4 * patienceMs)]),
  });
  const decoder = new TextDecoder();
  let text = "";
  let changed = Promise.withResolvers<void>();
  const read = async (): Promise<void> => {
    for await (const chunk of response.body ?? []) {
      text += decoder.decode(chunk, { stream: true });
      changed.resolve();
      changed = Promise.withResolvers();
    }
  };
  let ended = false;
  const reading = read().finally(() => {
    ended = true;
    changed.resolve();
  });
  reading.catch(() => undefined); // the caller that awaits the end gets the error
  return {
    frames: () => framesIn(text),
    text: () => text,
    until: async (fact) => {
      const late = AbortSignal.timeout(patienceMs);
      const lateness = new Promise<void>((resolve) =>
        late.addEventListener("abort", () => resolve(), { once: true }),
      );
      while (!fact(framesIn(text))) {
        if (ended || late.aborted) throw new Error(`not in time, or not before the end: ${text}`);
        await Promise.race([changed.promise, lateness]);
      }
    },
    end: async () => {
      await reading;
      return framesIn(text);
    },
    leave: () => leaving.abort(),
  };
}
