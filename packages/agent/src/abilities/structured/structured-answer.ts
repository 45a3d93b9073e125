import {
  filledFormat,
  type OutputForm,
  type ParseResult,
  type ReplyLanguage,
} from "@larkline/protocol";
import { noticeText, textHead, textsOf } from "../../texts/index.ts";
import type { Ability, FinalFacts, FinalText, SchemaFacts } from "../../turn/ability.ts";
import { joinedTexts } from "../../turn/messages.ts";

/*
 * Answers in a form that the configuration or a request asks for: JSON of a schema. Models write JSON, people in chats
 * read its format or a list of its fields. The model gets the reasons why its answer does not fit, twice at most.
 */

declare module "../../turn/ability.ts" {
  interface AbilityFacts {
    /** The form that the answer is to have; absent: free text. */
    structured?: OutputForm | undefined;
  }
}

/** How often the model was asked to correct its answer. */
type Corrections = number;

/** The ability of agents and requests that name a form. */
export const structured: Ability<Corrections> = {
  name: "structured",
  toolNames: [],
  isOfAnswer: true,
  shownText: (text, { structured: form }) => shownText(text, form),
  onFinal: (text, facts) =>
    facts.known.structured === undefined
      ? undefined
      : finalText(text, facts.known.structured, facts),
};

/** How often the model may correct an answer that does not fit. */
const maxCorrections = 2;

function finalText(
  text: string,
  form: OutputForm,
  facts: FinalFacts<Corrections>,
): FinalText<Corrections> {
  const { state = 0, schemas, language, isCut, hasStepsLeft } = facts;
  if (isCut) return { shown: shownText(text, form) };
  const read = readAnswer(text, form, schemas);
  const shown = shownAnswer(text, read, form, language);
  if (read.ok) return { shown, output: { value: read.value, form } };
  const message = `The answer is not of the form that it was to have: ${read.error}`;
  const warning = { code: "output_invalid", message } as const;
  // An answer that could not be checked may still be right: the model is not asked to correct it.
  const mayCorrect = read.isUnchecked !== true && state < maxCorrections && hasStepsLeft;
  if (!mayCorrect) return { shown, reason: "output_invalid", warning };
  return { again: correction(read.error), state: state + 1, warning };
}

const maxErrorChars = 1_000;

function correction(error: string): string {
  return (
    `It does not have the form that it must have: ${textHead(error, maxErrorChars)}.\n` +
    "Answer again. Write one JSON object that fits the schema, and nothing else."
  );
}

/** What an answer says in its form. `isUnchecked`: that cannot be known, so the model is not asked again. */
type ReadAnswer = { ok: true; value: unknown } | { ok: false; error: string; isUnchecked?: true };

/** Reads an answer, also one in a code fence. */
function readAnswer(text: string, { schema }: OutputForm, schemas: SchemaFacts): ReadAnswer {
  const parsed = parsedJson(text);
  if (!parsed.ok) return parsed;
  const checked = schemas.check(schema, parsed.value);
  return checked.ok ? parsed : checked;
}

function parsedJson(text: string): ParseResult<unknown> {
  try {
    return { ok: true, value: JSON.parse(withoutFence(text)) };
  } catch {
    return { ok: false, error: "not valid JSON" };
  }
}

/** The text without a code fence around all of it. */
function withoutFence(text: string): string {
  const whole = text.trim();
  const firstLine = whole.indexOf("\n");
  if (!whole.startsWith("```") || !whole.endsWith("```") || firstLine < 0) return whole;
  return whole.slice(firstLine + 1, -3);
}

/** What people see of a text that the model has written before its answer is read: no JSON. */
function shownText(text: string, form: OutputForm | undefined): string {
  return form !== undefined && text.includes("{") ? "" : text;
}

/** What people see of an answer. `read`: as its form reads it. */
function shownAnswer(
  text: string,
  read: ReadAnswer,
  form: OutputForm,
  language: ReplyLanguage,
): string {
  if (read.ok) return peopleText(read.value, form, language);
  const parsed = parsedJson(text);
  const seen =
    parsed.ok && isObject(parsed.value)
      ? fieldLines(parsed.value, language, "")
      : shownText(text, form);
  return joinedTexts(seen, noticeText("outputInvalid", language));
}

function peopleText(value: unknown, { format }: OutputForm, language: ReplyLanguage): string {
  if (!isObject(value)) return inlineText(value, language);
  if (format === undefined) return fieldLines(value, language, "");
  return filledFormat(format, (field) => inlineText(value[field], language));
}

/** One line for each field; fields of fields are indented below. */
function fieldLines(
  value: Readonly<Record<string, unknown>>,
  language: ReplyLanguage,
  indent: string,
): string {
  const { colon } = textsOf(language);
  return Object.entries(value)
    .map(([name, each]) => {
      const nested = nestedLines(each, language, `${indent}  `);
      const label = `${indent}- **${name}**${colon}`;
      return nested === undefined
        ? `${label}${inlineText(each, language)}`
        : `${label.trimEnd()}\n${nested}`;
    })
    .join("\n");
}

/** The lines below a field; undefined where its value stands on its own line. */
function nestedLines(value: unknown, language: ReplyLanguage, indent: string): string | undefined {
  if (isObject(value) && Object.keys(value).length > 0) return fieldLines(value, language, indent);
  if (!Array.isArray(value) || value.every((each) => typeof each !== "object" || each === null)) {
    return undefined;
  }
  return value
    .map(
      (each: unknown) =>
        nestedLines(each, language, indent) ?? `${indent}- ${inlineText(each, language)}`,
    )
    .join("\n");
}

/** A value in running text. */
function inlineText(value: unknown, language: ReplyLanguage): string {
  const { comma, semicolon, colon, answers } = textsOf(language);
  if (typeof value === "string") return value;
  if (typeof value === "number") return String(value);
  if (typeof value === "boolean") return value ? answers.yes : answers.no;
  if (Array.isArray(value)) {
    return value.map((each) => inlineText(each, language)).join(comma) || answers.nothing;
  }
  if (!isObject(value)) return answers.nothing;
  const fields = Object.entries(value).map(
    ([name, each]) => `${name}${colon}${inlineText(each, language)}`,
  );
  return fields.join(semicolon) || answers.nothing;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
