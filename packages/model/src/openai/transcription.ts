import { parserOf } from "@larkline/protocol";
import { Type } from "@larkline/protocol/type";

/** A model that writes down what is said, at a server with the interface of OpenAI's `/audio/transcriptions`. */
export interface TranscriptionAccess {
  model: string;
  apiKey?: string;
  /** With its `/v1`; the vendor's own address by default. */
  baseUrl?: string;
}

export interface Recording {
  bytes: Uint8Array;
  /** Servers go by its ending. */
  name: string;
  mediaType: string;
}

/** A transcript is far smaller. */
const maxAnswerBytes = 1_000_000;
const parseAnswer = parserOf(Type.Object({ text: Type.String() }));

/**
 * What is said in a recording; empty where nothing is. Rejects, with the status and without the words of the server,
 * where it refuses, and with the signal's reason.
 */
export async function transcribe(
  { model, apiKey, baseUrl = "https://api.openai.com/v1" }: TranscriptionAccess,
  { bytes, name, mediaType }: Recording,
  signal: AbortSignal,
): Promise<string> {
  const form = new FormData();
  form.set("model", model);
  form.set("file", new Blob([Uint8Array.from(bytes)], { type: mediaType }), name);
  const response = await fetch(`${baseUrl.replace(/\/+$/, "")}/audio/transcriptions`, {
    method: "POST",
    headers: apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` },
    body: form,
    redirect: "error", // the key is for this address
    signal,
  });
  const answer = await bodyOf(response);
  if (!response.ok) throw new Error(`the server of the transcription answered ${response.status}`);
  const parsed = parseAnswer(jsonIn(answer));
  if (!parsed.ok) throw new Error("the server of the transcription gave no text");
  return parsed.value.text.toWellFormed().trim();
}

async function bodyOf({ body }: Response): Promise<string> {
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of (body ?? []) as AsyncIterable<Uint8Array>) {
    size += piece.byteLength;
    if (size > maxAnswerBytes) throw new Error("the server of the transcription gave too much");
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString("utf8");
}

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
