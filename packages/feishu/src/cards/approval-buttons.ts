import { ruleText } from "@larkline/agent/permissions";
import type { Approval, ReplyLanguage } from "@larkline/protocol";
import { shownName, shownWords } from "./approval-facts.ts";
import { approvalTexts } from "./approval-texts.ts";
import { button, fits, plainText, type CardElement } from "./element.ts";
import { visibleText } from "./escape.ts";

/** Longest note or reason that a form takes. */
const maxNote = 500;
/** A rule that is longer is not offered: nobody is to agree to what is not shown whole. */
const maxRule = { characters: 300, bytes: 1_500 };
/** The platform takes 100 characters on a button. */
const maxButtonText = 90;

function decisionValue({ id }: Approval, decision: "approve" | "reject", more: CardElement = {}): CardElement {
  return { __approval__: id, decision, ...more };
}

function outcomeValue({ id }: Approval, action: "retry" | "done" | "abort"): CardElement {
  return { larkline: "outcome", approval: id, action };
}

function confirmed(element: CardElement, title: string, text: string): CardElement {
  return { ...element, confirm: { title: plainText(title), text: plainText(text) } };
}

export function approveButton(approval: Approval, language: ReplyLanguage): CardElement {
  const value = decisionValue(approval, "approve");
  return button(approvalTexts[language].approve, { type: "primary", elementId: "approve", value });
}

export function rejectButton(approval: Approval, language: ReplyLanguage): CardElement {
  const value = decisionValue(approval, "reject");
  return button(approvalTexts[language].reject, { type: "danger", elementId: "reject", value });
}

/** Approves, and leaves a rule behind; where policy permits it and the rule can be shown whole. */
export function alwaysButton(approval: Approval, language: ReplyLanguage): CardElement[] {
  const { remember, requester } = approval;
  if (remember === undefined) return [];
  const texts = approvalTexts[language];
  const rule = visibleText(ruleText(remember));
  if (!fits(rule, maxRule)) return [];
  const who = remember.person === undefined ? undefined : shownName(requester.name || texts.somebody);
  const text = shownWords(texts.always(rule, who), { characters: maxButtonText, bytes: 400 });
  const value = decisionValue(approval, "approve", { remember: true });
  return [confirmed(button(text, { elementId: "always", value }), texts.alwaysTitle, texts.alwaysText(rule, who))];
}

interface NoteForm {
  name: string;
  field: string;
  hint: string;
  submit: CardElement;
}

/** A form stands at the root of a card, and everything in it has a name of its own ("Form container"). */
function noteForm({ name, field, hint, submit }: NoteForm): CardElement {
  const input = { tag: "input", name: field, placeholder: plainText(hint), max_length: maxNote, width: "fill" };
  return { tag: "form", name, elements: [input, { ...submit, name: `${name}_submit`, form_action_type: "submit" }] };
}

/** Rejects with what stands in `reason`. */
export function rejectForm(approval: Approval, language: ReplyLanguage): CardElement {
  const texts = approvalTexts[language];
  const submit = button(texts.rejectWithReason, { type: "danger", value: decisionValue(approval, "reject") });
  return noteForm({ name: "reject_form", field: "reason", hint: texts.reasonHint, submit });
}

export function retryButton(approval: Approval, language: ReplyLanguage): CardElement {
  const texts = approvalTexts[language];
  const retry = button(texts.retry, { elementId: "retry", value: outcomeValue(approval, "retry") });
  return confirmed(retry, texts.retryTitle, texts.retryText);
}

export function abortButton(approval: Approval, language: ReplyLanguage): CardElement {
  const value = outcomeValue(approval, "abort");
  return button(approvalTexts[language].abort, { type: "danger", elementId: "abort", value });
}

/** Marks as done, with what stands in `note`. */
export function doneForm(approval: Approval, language: ReplyLanguage): CardElement {
  const texts = approvalTexts[language];
  const submit = button(texts.markDone, { type: "primary", value: outcomeValue(approval, "done") });
  return noteForm({ name: "done_form", field: "note", hint: texts.noteHint, submit });
}
