type Fields = Record<string, unknown>;

function fieldsOf(value: unknown): Fields | null {
  return typeof value === "object" && value !== null ? (value as Fields) : null; // any object can be read by key
}

function stringOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

function textOfChoices(choices: readonly unknown[]): string {
  let text = "";
  for (const choice of choices) {
    text += stringOf(fieldsOf(fieldsOf(choice)?.["delta"])?.["content"]);
  }
  return text;
}

/** Every chunk names its family by its own shape, so a family never has to be guessed from the first one. */
function textOfChunk(chunk: unknown): string {
  const fields = fieldsOf(chunk);
  if (fields === null) return "";
  if (Array.isArray(fields["choices"])) return textOfChoices(fields["choices"]);
  switch (fields["type"]) {
    case "text_delta":
      return stringOf(fields["text"]);
    case "content_block_start":
      return stringOf(fieldsOf(fields["content_block"])?.["text"]);
    case "content_block_delta": {
      const delta = fieldsOf(fields["delta"]);
      return delta?.["type"] === "text_delta" ? stringOf(delta["text"]) : "";
    }
    default:
      return "";
  }
}

function isIterable(source: unknown): source is AsyncIterable<unknown> | Iterable<unknown> {
  const fields = fieldsOf(source);
  return fields !== null && (Symbol.asyncIterator in fields || Symbol.iterator in fields);
}

/**
 * The text of a model stream of any maker: OpenAI chunks, Anthropic events or our own chunks,
 * as async or sync iterable. Tool calls, thinking and stops are skipped. Anything that is not an
 * iterable of chunks (a string, a number, null) fails with a TypeError when iteration starts.
 */
export async function* textStream(source: unknown): AsyncGenerator<string> {
  if (!isIterable(source)) throw new TypeError("textStream needs an iterable of stream chunks");
  for await (const chunk of source) {
    const text = textOfChunk(chunk);
    if (text !== "") yield text;
  }
}
