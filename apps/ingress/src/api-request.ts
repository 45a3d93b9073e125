/** Name that stands for the HTTP API where a bot's app id would stand. */
export const apiApp = "api";

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** The text of a body that was left as bytes; undefined when it is not UTF-8. */
export function bodyText(body: unknown): string | undefined {
  try {
    return body instanceof Uint8Array ? utf8.decode(body) : "";
  } catch {
    return undefined;
  }
}

/** Whether a text can be the id of a session of the API. */
export function isSessionId(text: string): boolean {
  return /^[A-Za-z0-9_-]{1,64}$/.test(text);
}
