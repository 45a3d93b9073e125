import { scheduleEvents, type ScheduleEvent } from "@larkline/protocol/schedule";
import { parserOf } from "@larkline/protocol";
import { Type } from "@larkline/protocol/type";
import type { ApiCaller, CallOptions } from "../transport/api-call.ts";
import { FeishuError } from "../transport/error.ts";
import { callWithToken, type TokenBearer } from "../transport/token-call.ts";

// Events that the platform sends after an app has subscribed itself ("Subscribe to task events", "Subscribe to approval
// events"), and about a person after that person has subscribed the app to them ("Subscribe to meeting events", "Subscribe
// to minutes events", "Subscribe to events" of mails, "Subscribe to event changes" of calendars). The calls have no key;
// subscribing twice is the same as once.

type Call = Parameters<typeof callWithToken>[1];

/** One call with the token of the person; `undo` ends what it has begun. */
interface Subscribing {
  person: TokenBearer;
  undo: boolean;
  signal: AbortSignal | undefined;
}

const subscribing: Readonly<Record<ScheduleEvent, (how: Subscribing) => Promise<void>>> = {
  "meeting-ended": async (how) => {
    const data = { event_type: scheduleEvents["meeting-ended"].type };
    await post(how, `/open-apis/vc/v1/meetings/${words(how)}`, data);
  },
  "minutes-ready": async (how) => {
    const data = { event_type: scheduleEvents["minutes-ready"].type };
    await post(how, `/open-apis/minutes/v1/minutes/${words(how)}`, data);
  },
  mail: async (how) => {
    const verb = how.undo ? "unsubscribe" : "subscribe";
    // The one kind that there is.
    await post(how, `/open-apis/mail/v1/user_mailboxes/me/event/${verb}`, { event_type: 1 });
  },
  calendar: async (how) => {
    const id = await primaryCalendar(how);
    const url = `/open-apis/calendar/v4/calendars/${encodeURIComponent(id)}/events/${words(how)}`;
    await post(how, url, {});
  },
};

/** From now on the app gets events of this kind about the person. Rejects with a TokenCallError. */
export async function subscribePerson(
  on: ScheduleEvent,
  person: TokenBearer,
  signal?: AbortSignal,
): Promise<void> {
  await subscribing[on]({ person, undo: false, signal });
}

/** The app gets them no more. Rejects with a TokenCallError. */
export async function unsubscribePerson(
  on: ScheduleEvent,
  person: TokenBearer,
  signal?: AbortSignal,
): Promise<void> {
  await subscribing[on]({ person, undo: true, signal });
}

function words({ undo }: Subscribing): string {
  return undo ? "unsubscription" : "subscription";
}

async function post({ person, signal }: Subscribing, url: string, data: object): Promise<void> {
  const run: Call = async (client, options) =>
    await client.request({ method: "POST", url, data }, options);
  await callWithToken(person, run, signal);
}

/** A person has one. */
async function primaryCalendar({ person, signal }: Subscribing): Promise<string> {
  const { calendars } = await callWithToken(
    person,
    async (client, options) => await client.calendar.v4.calendar.primary({}, options),
    signal,
  );
  return calendars?.[0]?.calendar?.calendar_id ?? "primary";
}

/** What an app subscribes itself to: tasks that it is responsible for, or approvals of the definition with a code. */
export type OwnSubscription = "tasks" | `approval:${string}`;

const parseDone = parserOf(Type.Object({}));
/** The definition is subscribed to already. */
const subscribedBefore = 1390007;

/** From now on the app gets these events. Subscribing twice is the same as once. Rejects with a FeishuError. */
export async function subscribeApp(
  caller: ApiCaller,
  to: OwnSubscription,
  options?: CallOptions,
): Promise<void> {
  const [api, url] =
    to === "tasks"
      ? ["task.subscribe", "/open-apis/task/v2/task_v2/task_subscription"]
      : [
          "approval.subscribe",
          `/open-apis/approval/v4/approvals/${encodeURIComponent(to.slice("approval:".length))}/subscribe`,
        ];
  const request = { method: "POST", url, data: {} };
  try {
    await caller.call(
      { api, run: (client, sdk) => client.request(request, sdk), parse: parseDone },
      options,
    );
  } catch (error) {
    if (!(error instanceof FeishuError) || error.code !== subscribedBefore) throw error;
  }
}
