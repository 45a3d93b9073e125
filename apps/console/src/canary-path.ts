import { canaryMessage, canarySessionId, jsonParserOf, StreamFrame } from "@larkline/protocol";

/** Where ingress is, and the word that its HTTP API asks for. */
export interface CanaryTarget {
  url: string;
  token: string | undefined;
}

/** Why a message did not come through. */
export class CanaryMissedError extends Error {}

const parseFrame = jsonParserOf(StreamFrame);
/** A run of the canary has a few hundred bytes. */
const maxBytes = 65_536;

async function textOf(response: Response): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    if (text.length > maxBytes) throw new CanaryMissedError("the answer is no run");
  }
  return text;
}

/** The last frame says how the run has ended. */
function lastFrame(stream: string): StreamFrame | undefined {
  const line = stream.split("\n").findLast((one) => one.startsWith("data:"));
  const frame = line === undefined ? undefined : parseFrame(line.slice("data:".length));
  return frame?.ok === true ? frame.value : undefined;
}

/**
 * Sends the canary's message and waits until its run is over: appended, woken, claimed, committed and
 * streamed. Rejects when it is not done until `signal` aborts; a message that still waits then is taken back
 * by ingress, because its client has left.
 */
export async function takeCanaryPath({ url, token }: CanaryTarget, signal: AbortSignal): Promise<void> {
  const response = await fetch(`${url.replace(/\/$/, "")}/chat`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    },
    body: JSON.stringify({ message: canaryMessage, session_id: canarySessionId, on_disconnect: "cancel" }),
    signal,
  });
  const text = await textOf(response);
  if (!response.ok) throw new CanaryMissedError(`ingress answered with status ${response.status}`);
  const frame = lastFrame(text);
  if (frame?.type === "error") throw new CanaryMissedError(`the run failed: ${frame.message}`);
  if (frame?.type !== "done") throw new CanaryMissedError("the run has no end");
}
