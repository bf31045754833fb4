import { Icon } from "@/components/ui/Icon";
import { useAddress, useChangeAddress } from "@/useAddress";
import { filterChips } from "@/views/filterChips";

/** The filters that came with a link, such as a day or a model; each can be removed. */
export function FilterChips() {
  const chips = filterChips(useAddress());
  const changeAddress = useChangeAddress();
  if (chips.length === 0) return null;
  return (
    <ul aria-label="Filters of the link" className="flex flex-wrap gap-1">
      {chips.map(({ key, text, change }) => (
        <li key={key} className="max-w-full">
          <button
            type="button"
            onClick={() => changeAddress(change)}
            aria-label={`Remove the filter ${text}`}
            className="flex h-6 max-w-full items-center gap-1 rounded-1 bg-bg-press px-1.5 text-12 hover:bg-n-5"
          >
            <span className="truncate">{text}</span>
            <Icon name="close" className="size-3 text-icon" />
          </button>
        </li>
      ))}
    </ul>
  );
}
