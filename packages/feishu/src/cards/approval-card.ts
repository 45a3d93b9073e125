import { ruleText } from "@larkline/agent/permissions";
import type { Approval, ApprovalDecision, ApprovalState, ReplyLanguage, SettledState } from "@larkline/protocol";
import {
  abortButton,
  approveButton,
  alwaysButton,
  doneForm,
  rejectButton,
  rejectForm,
  retryButton,
} from "./approval-buttons.ts";
import { decidedFacts, openFacts, progress, ruleScope, shownName, shownWords } from "./approval-facts.ts";
import { approvalTexts } from "./approval-texts.ts";
import { cardInLanguages, fits, markdown, plainText, type CardElement, type TextRoom } from "./element.ts";
import { fenced, inlineText, invisible, visibleText } from "./escape.ts";
import { argumentsPanel, shownArguments } from "./shown-arguments.ts";

/** An approval and what has become of it, as far as its card shows it. */
export interface ShownApproval {
  approval: Approval;
  state: ApprovalState;
  /** In the order they were taken. */
  decisions: readonly ApprovalDecision[];
}

export interface ApprovalCardOptions {
  /** Default: that of the approval. */
  language?: ReplyLanguage;
  /** Settled cards only: nothing that people or models wrote, for where the platform refuses it. */
  bare?: boolean;
}

const ruleRoom: TextRoom = { characters: 2_000, bytes: 7_500 };

const settledTemplates: Partial<Record<SettledState, string>> = { approved: "green", retried: "green", done: "green" };

/** Names one look of the card: two statuses of the same mark have the same card. */
export function approvalMark({ state, decisions }: ShownApproval): string {
  return state === "pending" && decisions.length > 0 ? `pending-${decisions.length}` : state;
}

/** A tool's name within markdown: as it is where it holds no markup, which names that vendors accept hardly do. */
function markdownName(tool: string): string {
  const name = shownName(tool);
  if (/^[A-Za-z\d]+(?:[_-][A-Za-z\d]+)*$/.test(name)) return name;
  return `${invisible}${inlineText(name)}${invisible}`;
}

function titled(title: string, template: string, elements: CardElement[]): CardElement {
  return {
    schema: "2.0",
    config: { update_multi: true, enable_forward: false, summary: { content: title } },
    header: { title: plainText(title), template },
    body: { direction: "vertical", elements },
  };
}

function ruleOf({ remember, tool }: Approval): string {
  return visibleText(ruleText(remember ?? { tool, pattern: "" }));
}

function ruleBlock(approval: Approval): string {
  return fenced(shownWords(ruleOf(approval), ruleRoom));
}

function question(approval: Approval, language: ReplyLanguage): CardElement[] {
  const text = approvalTexts[language].kinds[approval.kind].question(markdownName(approval.tool));
  if (approval.kind === "rule") return [markdown(`${text}\n${ruleBlock(approval)}`), ...ruleScope(approval, language)];
  const { block, more } = shownArguments(approval, language);
  return [markdown(`${text}\n${block}`), ...more];
}

function buttons(approval: Approval, language: ReplyLanguage): CardElement[] {
  const { kind } = approval;
  if (kind === "outcome") {
    return [retryButton(approval, language), abortButton(approval, language), doneForm(approval, language)];
  }
  const approve = approveButton(approval, language);
  const reject = rejectButton(approval, language);
  // Nobody is to agree to what is not shown whole.
  if (kind === "rule") return fits(ruleOf(approval), ruleRoom) ? [approve, reject] : [reject];
  return [approve, reject, ...alwaysButton(approval, language), rejectForm(approval, language)];
}

function pendingCard({ approval, decisions }: ShownApproval, language: ReplyLanguage): CardElement {
  const title = approvalTexts[language].kinds[approval.kind].title(shownName(approval.tool));
  return titled(title, approval.risk === "high" ? "red" : "orange", [
    ...question(approval, language),
    ...openFacts(approval, language),
    ...progress(approval, decisions, language),
    ...buttons(approval, language),
  ]);
}

interface Settled {
  state: SettledState;
  language: ReplyLanguage;
  bare: boolean;
}

function record(approval: Approval, language: ReplyLanguage): CardElement {
  return approval.kind === "rule" ? markdown(ruleBlock(approval)) : argumentsPanel(approval, language);
}

function settledCard({ approval, decisions }: ShownApproval, { state, language, bare }: Settled): CardElement {
  const { endings } = approvalTexts[language].kinds[approval.kind];
  const { title, text } = endings[state] ?? endings.cancelled;
  const words = markdown(text(markdownName(approval.tool)));
  const more = bare ? [] : [...decidedFacts(decisions, language), record(approval, language)];
  return titled(title(shownName(approval.tool)), settledTemplates[state] ?? "grey", [words, ...more]);
}

/**
 * The card of an approval (JSON 2.0, below 30 KB whatever the approval holds): with buttons while it is
 * pending, without any once it is settled. What models and people wrote stands in code blocks and plain
 * texts that it cannot leave, secrets are masked, and what is not shown is said.
 */
export function approvalCard(
  status: ShownApproval,
  { language = status.approval.language, bare = false }: ApprovalCardOptions = {},
): CardElement {
  const { state, approval } = status;
  return cardInLanguages({ language, bilingual: approval.bilingual }, (each) =>
    state === "pending" ? pendingCard(status, each) : settledCard(status, { state, language: each, bare }),
  );
}
