import { parserOf, type ReplyLanguage } from "@larkline/protocol";
import { Type } from "typebox";
import type { EventAnswer } from "./event-router.ts";
import { refusalText } from "./notice.ts";

/** What a callback of a card says. It names neither session nor message of ours ("Card callback"). */
export interface Click {
  /** Of the component; empty when it has none, or one that is no object. */
  value: Readonly<Record<string, unknown>>;
  /** What stands in the form that it submits. */
  form: Readonly<Record<string, unknown>>;
  /** open_id; absent when the platform does not say it. */
  by?: string;
  /** Tenant of that person; absent when the platform does not say it. */
  tenant?: string;
}

/** Deals with clicks on buttons of one kind; undefined when the value is not what such buttons carry. */
export type ClickHandler = (click: Click & { by: string }) => Promise<EventAnswer | undefined>;

const Fields = Type.Record(Type.String(), Type.Unknown());
const parseFields = parserOf(Fields);
const parseOperator = parserOf(
  Type.Object({
    operator: Type.Object({
      open_id: Type.String({ minLength: 1, maxLength: 128 }),
      tenant_key: Type.Optional(Type.Union([Type.String({ maxLength: 128 }), Type.Null()])),
    }),
  }),
);
const parseAction = parserOf(Type.Object({ action: Fields }));

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  const parsed = parseFields(value);
  return parsed.ok ? parsed.value : {};
}

/** Reads the event of a callback; whatever is missing or broken counts as absent. */
export function clickOf(event: Readonly<Record<string, unknown>>): Click {
  const parsed = parseAction(event);
  const action = parsed.ok ? parsed.value.action : {};
  const operator = parseOperator(event);
  const click = { value: fieldsOf(action["value"]), form: fieldsOf(action["form_value"]) };
  if (!operator.ok) return click;
  const { open_id: by, tenant_key: tenant } = operator.value.operator;
  return { ...click, by, ...(tenant ? { tenant } : {}) };
}

const maxWordsLength = 1_000;

/** What a person wrote into a field of the form; undefined when that is nothing. */
export function wordsIn(form: Click["form"], field: string): string | undefined {
  const written = form[field];
  if (typeof written !== "string") return undefined;
  const words = [...written.slice(0, 4 * maxWordsLength).trim()].slice(0, maxWordsLength).join("");
  return words === "" ? undefined : words;
}

export type ToastType = "info" | "success" | "warning" | "error";

/** In the language of each person's client; English where that is neither. */
export function toastIn(type: ToastType, text: Readonly<Record<ReplyLanguage, string>>): EventAnswer {
  return { toast: { type, content: text.en, i18n: { zh_cn: text.zh, en_us: text.en } } };
}

/** The answer to somebody whom the platform does not name: nobody decides without being known. */
export function unknownPerson(): EventAnswer {
  return toastIn("info", {
    zh: "平台没有说明你是谁，操作未执行。",
    en: "The platform does not say who you are, so nothing was done.",
  });
}

/** The answer to somebody of a tenant that the bot does not serve. */
export function foreignPerson(): EventAnswer {
  return toastIn("info", { zh: refusalText("foreign_tenant", "zh"), en: refusalText("foreign_tenant", "en") });
}

/** The clicked card is replaced by this one (current version of the callback). */
export function withCard(answer: EventAnswer, card: Record<string, unknown>): EventAnswer {
  return { ...answer, card: { type: "raw", data: card } };
}
