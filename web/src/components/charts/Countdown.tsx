import { useNow } from "@/components/ui/Time";
import { countdown } from "@/views/fleet";
import { formatDateTime } from "@/views/time";

const RADIUS = 9;
const LENGTH = 2 * Math.PI * RADIUS;

/** How long until a time, counting down. If it is known when the wait began, a ring shows how much of it is left. */
export function Countdown({ label, since, until }: { label: string; since: string | null; until: string }) {
  const now = useNow();
  const end = Date.parse(until);
  const start = since === null ? end : Date.parse(since);
  const left = end > start ? Math.min(1, Math.max(0, (end - now) / (end - start))) : null;
  return (
    <span className="cd" title={formatDateTime(until)}>
      {left !== null && (
        <svg aria-hidden viewBox="0 0 24 24" width={20} height={20}>
          <circle cx={12} cy={12} r={RADIUS} fill="none" stroke="var(--n-5)" strokeWidth={2.5} />
          <circle
            cx={12}
            cy={12}
            r={RADIUS}
            fill="none"
            stroke="var(--running)"
            strokeWidth={2.5}
            strokeLinecap="round"
            strokeDasharray={`${(left * LENGTH).toFixed(1)} ${LENGTH.toFixed(1)}`}
            transform="rotate(-90 12 12)"
          />
        </svg>
      )}
      <span>
        <span className="m3">{label}</span>{" "}
        <b role="timer" className="num t-running">
          {countdown(until, now)}
        </b>
      </span>
    </span>
  );
}
