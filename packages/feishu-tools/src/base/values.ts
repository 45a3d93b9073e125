// Values of a Base as models write and read them ("Data structure of records").

/** A field of a table. */
export interface Field {
  id: string;
  name: string;
  type: number;
  isPrimary: boolean;
  /** Names of the choices of a select. */
  options: string[];
}

/** Types that tools can write, by the names that models use. */
export const fieldTypes = {
  text: 1,
  number: 2,
  select: 3,
  multi_select: 4,
  date: 5,
  checkbox: 7,
  person: 11,
  phone: 13,
  link: 15,
} as const;

export type FieldType = keyof typeof fieldTypes;

export const fieldTypeNames: readonly FieldType[] = [
  "text",
  "number",
  "select",
  "multi_select",
  "date",
  "checkbox",
  "person",
  "phone",
  "link",
];

export function typeNameOf(type: number): string {
  return fieldTypeNames.find((name) => fieldTypes[name] === type) ?? `type ${type}, read only`;
}

/** The list of fields, for a model that named one wrongly. */
export function fieldsText(fields: readonly Field[]): string {
  return fields
    .map(({ name, type, options, isPrimary }) => {
      const choices = options.length === 0 ? "" : `: ${options.slice(0, 50).join(" | ")}`;
      return `${JSON.stringify(name)} (${typeNameOf(type)}${isPrimary ? ", first column" : ""}${choices})`;
    })
    .join(", ");
}

/** The form in which the platform takes a row. Throws with words for the model, and all fields, where a value does not fit. */
export function platformRow(
  fields: readonly Field[],
  row: Readonly<Record<string, unknown>>,
): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(row).map(([name, value]) => {
      const field = fields.find((one) => one.name === name);
      if (field === undefined) {
        throw new Error(
          `There is no field ${JSON.stringify(name)}. The table has: ${fieldsText(fields)}`,
        );
      }
      return [name, value === null ? null : platformValue(field, value)];
    }),
  );
}

type Writer = { takes: string; write: (value: unknown) => unknown };

/** How a value of each type is written; undefined: it does not fit. */
const writers: Readonly<Record<number, Writer>> = {
  [fieldTypes.text]: { takes: "a text", write: asText },
  [fieldTypes.select]: { takes: "the name of a choice", write: asText },
  [fieldTypes.number]: { takes: "a number", write: asNumber },
  [fieldTypes.multi_select]: { takes: "a list of names of choices", write: asTexts },
  [fieldTypes.date]: {
    takes: "a date such as 2026-12-24 or 2026-12-24T09:30:00+08:00",
    write: (value) => asNumber(typeof value === "string" ? Date.parse(value) : value),
  },
  [fieldTypes.checkbox]: {
    takes: "true or false",
    write: (value) => (typeof value === "boolean" ? value : undefined),
  },
  [fieldTypes.person]: {
    takes: "open ids of people, which begin with ou_",
    write: (value) => {
      const ids = asTexts(value);
      return ids?.every((id) => /^ou_[A-Za-z0-9]{1,60}$/.test(id)) === true
        ? ids.map((id) => ({ id }))
        : undefined;
    },
  },
  [fieldTypes.phone]: {
    takes: "a phone number of digits",
    write: (value) => (typeof value === "string" && /^\+?\d+$/.test(value) ? value : undefined),
  },
  [fieldTypes.link]: {
    takes: "an address",
    write: (value) =>
      typeof value === "string" && URL.canParse(value) ? { text: value, link: value } : undefined,
  },
};

function asText(value: unknown): string | undefined {
  return typeof value === "string" || typeof value === "number" ? String(value) : undefined;
}

function asNumber(value: unknown): number | undefined {
  const number = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
  return typeof number === "number" && Number.isFinite(number) ? number : undefined;
}

function asTexts(value: unknown): string[] | undefined {
  const list: unknown[] = Array.isArray(value) ? value : [value];
  return list.every((one): one is string => typeof one === "string") ? list : undefined;
}

function platformValue({ name, type }: Field, value: unknown): unknown {
  const writer = writers[type];
  if (writer === undefined) {
    throw new Error(`The field ${JSON.stringify(name)} cannot be written (${typeNameOf(type)}).`);
  }
  const written = writer.write(value);
  if (written === undefined) {
    throw new Error(`The field ${JSON.stringify(name)} takes ${writer.takes}.`);
  }
  return written;
}

/** A value as a model reads it. */
export function shownValue(field: Field | undefined, value: unknown): unknown {
  if (value === null || value === undefined) return null;
  if (field?.type === fieldTypes.date && typeof value === "number") {
    return new Date(value).toISOString();
  }
  if (Array.isArray(value)) {
    const parts = value.map((one) => shownPart(one));
    return field?.type === fieldTypes.text ? parts.join("") : parts;
  }
  return typeof value === "object" ? shownPart(value) : value;
}

/** Segments of texts, people, links: the words of them that a reader needs. */
function shownPart(part: unknown): unknown {
  if (typeof part !== "object" || part === null) return part;
  const { text, link, name, id } = part as Record<string, unknown>; // an object, as checked
  if (typeof link === "string") {
    return text === link || text === undefined ? link : `${String(text)} (${link})`;
  }
  if (typeof text === "string") return text;
  if (typeof name === "string") return typeof id === "string" ? `${name} (${id})` : name;
  return typeof id === "string" ? id : JSON.stringify(part);
}
