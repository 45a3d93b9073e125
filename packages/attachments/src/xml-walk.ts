import { Parser } from "htmlparser2";
import { Refusal } from "./reading.ts";

/** Attributes of an element, by their full names (`r:id`). */
export type XmlAttributes = Readonly<Record<string, string>>;

/** Hears the elements of a document in order; names come without their namespace prefix. */
export interface XmlListener {
  open?(name: string, attributes: XmlAttributes): void;
  text?(text: string): void;
  close?(name: string): void;
}

// Word nests tables and shapes to a few dozen levels.
const maxDepth = 512;

function localName(name: string): string {
  return name.slice(name.indexOf(":") + 1);
}

/** An attribute by its name without prefix; one with a prefix wins (`r:id` over `id`). */
export function attributeOf(attributes: XmlAttributes, name: string): string | undefined {
  for (const [full, value] of Object.entries(attributes)) if (full.endsWith(`:${name}`)) return value;
  return Object.hasOwn(attributes, name) ? attributes[name] : undefined;
}

/**
 * Walks through XML piece by piece. Entities that a document declares are never expanded, nothing
 * is fetched. Refuses a document nested deeper than 512 elements.
 */
export async function walkXml(source: AsyncIterable<Uint8Array>, listener: XmlListener): Promise<void> {
  let depth = 0;
  const parser = new Parser(
    {
      onopentag(name, attributes) {
        depth += 1;
        if (depth > maxDepth) throw new Refusal("failed", "The document is nested too deeply.");
        listener.open?.(localName(name), attributes);
      },
      ontext: (text) => listener.text?.(text),
      onclosetag(name) {
        depth -= 1;
        listener.close?.(localName(name));
      },
    },
    { xmlMode: true },
  );
  let decoder: InstanceType<typeof TextDecoder> | undefined;
  for await (const chunk of source) {
    // XML is UTF-8 or, with a byte order mark, UTF-16.
    decoder ??= new TextDecoder(chunk[0] === 0xff && chunk[1] === 0xfe ? "utf-16le" : "utf-8");
    parser.write(decoder.decode(chunk, { stream: true }));
  }
  parser.end();
}
