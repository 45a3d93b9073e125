import type { ApiCallContext, ApiRoute } from "../api-route.ts";
import { type DeliveryReport, envelope } from "../delivery.ts";
import { userIds } from "../events.ts";
import { type JsonObject, PlatformError, success } from "../open-api.ts";
import type { Platform } from "../platform.ts";

// Events that an app gets about a person once that person has subscribed it to them ("Subscribe to meeting events").

interface Kind {
  /** Where people subscribe, and where they end that. */
  paths: readonly [begin: string, end: string];
  /** What the body says; absent: nothing. */
  eventType?: string | number;
  /** What they must have granted. */
  scope: string;
  /** How the event names the people. */
  named: (people: readonly JsonObject[]) => JsonObject;
}

const subscribers: Kind["named"] = (people) => ({ subscriber_ids: people });
const mails = "/open-apis/mail/v1/user_mailboxes/:mailbox/event";
const calendars = "/open-apis/calendar/v4/calendars/:calendar_id/events";

const kinds = {
  "vc.meeting.participant_meeting_ended_v1": {
    paths: ["/open-apis/vc/v1/meetings/subscription", "/open-apis/vc/v1/meetings/unsubscription"],
    eventType: "vc.meeting.participant_meeting_ended_v1",
    scope: "vc:meeting.meetingevent:read",
    named: subscribers,
  },
  "minutes.minute.generated_v1": {
    paths: [
      "/open-apis/minutes/v1/minutes/subscription",
      "/open-apis/minutes/v1/minutes/unsubscription",
    ],
    eventType: "minutes.minute.generated_v1",
    scope: "minutes:minutes.basic:read",
    named: subscribers,
  },
  "mail.user_mailbox.event.message_received_v1": {
    paths: [`${mails}/subscribe`, `${mails}/unsubscribe`],
    eventType: 1,
    scope: "mail:event",
    named: (people) => ({ subscriber: { user_ids: people } }),
  },
  "calendar.calendar.event.changed_v4": {
    paths: [`${calendars}/subscription`, `${calendars}/unsubscription`],
    scope: "calendar:calendar.event:read",
    named: (people) => ({ user_id_list: people }),
  },
} as const satisfies Record<string, Kind>;
type EventType = keyof typeof kinds;

export interface SubscriptionControls {
  /** Types of the events to which a person has subscribed an app. */
  subscribed(appId: string, openId: string): readonly string[];
}

export class SimSubscriptions implements SubscriptionControls {
  /** By app and person. */
  readonly types = new Map<string, Set<string>>();
  #platform: Platform | undefined;

  subscribed(appId: string, openId: string): readonly string[] {
    return [...(this.types.get(`${appId} ${openId}`) ?? [])];
  }

  routes(platform: Platform): ApiRoute[] {
    this.#platform = platform;
    return Object.entries<Kind>(kinds).flatMap(([type, { paths, scope, eventType }]) =>
      paths.map((path, at) => ({
        method: "POST",
        path,
        personScopes: [scope],
        handle: (call: ApiCallContext) => {
          if (call.body.event_type !== eventType) {
            throw new PlatformError(99992402, "field validation failed: event_type");
          }
          return this.#change(call, type, at === 0);
        },
      })),
    );
  }

  /** One event for each app that some of these people have subscribed; it names those. */
  async announce(
    eventType: EventType,
    openIds: readonly string[],
    event: JsonObject,
  ): Promise<DeliveryReport[]> {
    const platform = this.#platform;
    if (platform === undefined) return [];
    const reports = [...platform.apps.values()].map(async (app) => {
      const people = [...new Set(openIds)].flatMap((openId) => {
        const person = platform.directory.users.get(openId);
        const isSubscribed =
          this.subscribed(app.appId, openId).includes(eventType) &&
          platform.grants.grantedTo(app.appId, openId).length > 0;
        return person === undefined || !isSubscribed ? [] : [userIds(person)];
      });
      if (people.length === 0) return [];
      const named = { ...event, ...kinds[eventType].named(people) };
      const createdAt = platform.clock.now();
      return [await platform.publish(envelope(app, { eventType, event: named, createdAt }))];
    });
    return (await Promise.all(reports)).flat();
  }

  #change({ app, person }: ApiCallContext, type: string, isOn: boolean): JsonObject {
    const key = `${app.appId} ${person?.openId ?? ""}`;
    const types = this.types.get(key) ?? new Set<string>();
    if (isOn) types.add(type);
    else types.delete(type);
    this.types.set(key, types);
    return success({});
  }
}
